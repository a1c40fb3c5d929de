//! The initiator: CLIENT_HELLO out, SERVER_HELLO and SERVER_AUTH in, CLIENT_AUTH out.

use super::auth::{self, Expected};
use super::flight::{self, Extensions};
use super::{Established, HandshakeError, InitiatorConfig, PeerPolicy, Progress, Side};
use crate::crypto::cert_verify::Role;
use crate::crypto::kem::{Decapsulator, KeyMaterial};
use crate::crypto::{
    HandshakeSecret, HandshakeTrafficSecret, Kem, Profile, Random, SignatureScheme, Suite,
    Transcript,
};
use crate::wire::{Flags, FrameType, Header, Tlv, tlv::tag};

/// The initiating side of one handshake.
#[derive(Debug)]
pub struct Initiator {
    state: State,
    outbound: Vec<u8>,
}

#[derive(Debug)]
enum State {
    ServerHello(Box<ExpectServerHello>),
    ServerAuth(Box<ExpectServerAuth>),
    Done,
    Failed,
}

/// CLIENT_HELLO is out.
#[derive(Debug)]
struct ExpectServerHello {
    config: InitiatorConfig,
    decapsulator: Decapsulator,
    transcript: Transcript,
}

/// The KEM is done, both handshake traffic secrets are known.
#[derive(Debug)]
struct ExpectServerAuth {
    config: InitiatorConfig,
    profile: Profile,
    suite: Suite,
    signature: SignatureScheme,
    handshake_secret: HandshakeSecret,
    client_secret: HandshakeTrafficSecret,
    server_secret: HandshakeTrafficSecret,
    transcript: Transcript,
}

/// The one profile that is built, and what it is made of here.
const PROFILE: Profile = Profile::Standard;
const KEM: Kem = Kem::X25519MlKem768;
const SIGNATURE: SignatureScheme = SignatureScheme::Ed25519;

impl Initiator {
    /// Draws the ephemeral keys and prepares CLIENT_HELLO.
    pub fn new(config: InitiatorConfig, random: &mut dyn Random) -> Self {
        Self::with_key_material(config, &KeyMaterial::draw(random))
    }

    /// As [`Initiator::new`], with given ephemeral keys: for known answers.
    pub fn with_key_material(config: InitiatorConfig, material: &KeyMaterial) -> Self {
        assert!(!config.suites.is_empty(), "an initiator offers a suite");
        let decapsulator = Decapsulator::new(material);
        let mut transcript = Transcript::new();
        let mut outbound = Vec::new();
        let suites: Vec<u8> = config
            .suites
            .iter()
            .flat_map(|suite| suite.code_point().to_be_bytes())
            .collect();
        flight::write_hello(
            FrameType::CLIENT_HELLO,
            [
                Tlv {
                    tag: tag::PROFILE_OFFER,
                    value: &[PROFILE.code_point()],
                },
                Tlv {
                    tag: tag::KEM_OFFER,
                    value: &KEM.code_point().to_be_bytes(),
                },
                Tlv {
                    tag: tag::SIG_OFFER,
                    value: &SIGNATURE.code_point().to_be_bytes(),
                },
                Tlv {
                    tag: tag::AEAD_OFFER,
                    value: &suites,
                },
                Tlv {
                    tag: tag::KEM_SHARE,
                    value: decapsulator.share(),
                },
            ],
            &mut transcript,
            &mut outbound,
        );
        Self {
            state: State::ServerHello(Box::new(ExpectServerHello {
                config,
                decapsulator,
                transcript,
            })),
            outbound,
        }
    }

    /// Appends whatever is to be sent.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.outbound);
    }

    /// Takes the next frame from the responder. Errors stick.
    pub fn handle_frame(
        &mut self,
        header: &Header,
        payload: &mut [u8],
    ) -> Result<Progress, HandshakeError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::ServerHello(state) => {
                self.state = State::ServerAuth(Box::new(state.handle(header, payload)?));
                Ok(Progress::Continue)
            }
            State::ServerAuth(state) => {
                let established = state.handle(header, payload, &mut self.outbound)?;
                self.state = State::Done;
                Ok(Progress::Done(Box::new(established)))
            }
            State::Done => {
                self.state = State::Done;
                Err(HandshakeError::AlreadyDone)
            }
            State::Failed => Err(HandshakeError::AlreadyFailed),
        }
    }
}

impl ExpectServerHello {
    fn handle(self, header: &Header, payload: &[u8]) -> Result<ExpectServerAuth, HandshakeError> {
        let Self {
            config,
            decapsulator,
            mut transcript,
        } = self;
        flight::check_frame(header, payload, FrameType::SERVER_HELLO, Flags::NONE)?;
        transcript.add_frame_type(FrameType::SERVER_HELLO);
        let [profile, kem, signature, suite, ciphertext] = flight::read_flight(
            payload,
            [
                tag::PROFILE_SELECT,
                tag::KEM_SELECT,
                tag::SIG_SELECT,
                tag::AEAD_SELECT,
                tag::KEM_CIPHERTEXT,
            ],
            Extensions::Skipped,
            |tlv| transcript.add_tlv(tlv),
        )?;
        let &[profile] = profile else {
            return Err(HandshakeError::TlvValue(tag::PROFILE_SELECT));
        };
        let offered = |tag, value, offered| {
            if offered {
                Ok(())
            } else {
                Err(HandshakeError::SelectedNotOffered { tag, value })
            }
        };
        offered(
            tag::PROFILE_SELECT,
            u16::from(profile),
            profile == PROFILE.code_point(),
        )?;
        let kem = flight::selected(tag::KEM_SELECT, kem)?;
        offered(tag::KEM_SELECT, kem, kem == KEM.code_point())?;
        let signature = flight::selected(tag::SIG_SELECT, signature)?;
        offered(
            tag::SIG_SELECT,
            signature,
            signature == SIGNATURE.code_point(),
        )?;
        let suite_code_point = flight::selected(tag::AEAD_SELECT, suite)?;
        let suite = Suite::from_code_point(suite_code_point)
            .filter(|suite| config.suites.contains(suite))
            .ok_or(HandshakeError::SelectedNotOffered {
                tag: tag::AEAD_SELECT,
                value: suite_code_point,
            })?;

        let hash = PROFILE.parameters().hash;
        transcript.select(hash);
        let shared = decapsulator
            .decapsulate(ciphertext)
            .map_err(HandshakeError::Kem)?;
        let handshake_secret = HandshakeSecret::extract(hash, &shared);
        let (client_secret, server_secret) = handshake_secret.traffic_secrets(&transcript.point());
        Ok(ExpectServerAuth {
            config,
            profile: PROFILE,
            suite,
            signature: SIGNATURE,
            handshake_secret,
            client_secret,
            server_secret,
            transcript,
        })
    }
}

impl ExpectServerAuth {
    fn handle(
        self,
        header: &Header,
        payload: &mut [u8],
        outbound: &mut Vec<u8>,
    ) -> Result<Established, HandshakeError> {
        let mut transcript = self.transcript;
        let peers = self.config.peer.map_or(PeerPolicy::Any, PeerPolicy::only);
        let (peer, _) = auth::read_auth(
            header,
            payload,
            &Expected {
                role: Role::Server,
                suite: self.suite,
                signature: self.signature,
                secret: &self.server_secret,
                peers: &peers,
            },
            &mut transcript,
        )?;
        let th_ccv = auth::write_auth(
            &self.config.identity,
            Role::Client,
            self.suite,
            &self.client_secret,
            &mut transcript,
            outbound,
        );
        Ok(Established {
            side: Side::Initiator,
            profile: self.profile,
            suite: self.suite,
            master: self.handshake_secret.into_master(&th_ccv),
            peer: peer.identity(),
        })
    }
}
