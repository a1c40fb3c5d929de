//! The responder: CLIENT_HELLO in, SERVER_HELLO and SERVER_AUTH out, CLIENT_AUTH in.

use super::auth::{self, Expected};
use super::flight::{self, Extensions};
use super::{Established, HandshakeError, Progress, ResponderConfig, Side};
use crate::crypto::cert_verify::Role;
use crate::crypto::kem::{self, Encapsulation};
use crate::crypto::{
    HandshakeSecret, HandshakeTrafficSecret, Kem, Profile, Random, SignatureScheme, Suite,
    Transcript,
};
use crate::wire::{Flags, FrameType, Header, Tlv, tlv::tag};

/// The responding side of one handshake.
#[derive(Debug)]
pub struct Responder {
    state: State,
    outbound: Vec<u8>,
}

#[derive(Debug)]
enum State {
    ClientHello(Box<ExpectClientHello>),
    ClientAuth(Box<ExpectClientAuth>),
    Done,
    Failed,
}

/// Nothing has come yet.
#[derive(Debug)]
struct ExpectClientHello {
    config: ResponderConfig,
    encapsulation: Encapsulation,
}

/// SERVER_HELLO and SERVER_AUTH are out.
#[derive(Debug)]
struct ExpectClientAuth {
    config: ResponderConfig,
    profile: Profile,
    suite: Suite,
    signature: SignatureScheme,
    handshake_secret: HandshakeSecret,
    client_secret: HandshakeTrafficSecret,
    transcript: Transcript,
}

impl Responder {
    /// Draws what the encapsulation needs.
    pub fn new(config: ResponderConfig, random: &mut dyn Random) -> Self {
        Self::with_encapsulation(config, Encapsulation::draw(random))
    }

    /// As [`Responder::new`], with a given encapsulation: for known answers.
    pub fn with_encapsulation(config: ResponderConfig, encapsulation: Encapsulation) -> Self {
        Self {
            state: State::ClientHello(Box::new(ExpectClientHello {
                config,
                encapsulation,
            })),
            outbound: Vec::new(),
        }
    }

    /// Appends whatever is to be sent.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.outbound);
    }

    /// Takes the next frame from the initiator. Errors stick.
    pub fn handle_frame(
        &mut self,
        header: &Header,
        payload: &mut [u8],
    ) -> Result<Progress, HandshakeError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::ClientHello(state) => {
                let next = state.handle(header, payload, &mut self.outbound)?;
                self.state = State::ClientAuth(Box::new(next));
                Ok(Progress::Continue)
            }
            State::ClientAuth(state) => {
                let established = state.handle(header, payload)?;
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

impl ExpectClientHello {
    fn handle(
        self,
        header: &Header,
        payload: &[u8],
        outbound: &mut Vec<u8>,
    ) -> Result<ExpectClientAuth, HandshakeError> {
        let Self {
            config,
            encapsulation,
        } = self;
        flight::check_frame(header, payload, FrameType::CLIENT_HELLO, Flags::NONE)?;
        let mut transcript = Transcript::new();
        transcript.add_frame_type(FrameType::CLIENT_HELLO);
        let [profiles, kems, signatures, suites, share] = flight::read_flight(
            payload,
            [
                tag::PROFILE_OFFER,
                tag::KEM_OFFER,
                tag::SIG_OFFER,
                tag::AEAD_OFFER,
                tag::KEM_SHARE,
            ],
            Extensions::Skipped,
            |tlv| transcript.add_tlv(tlv),
        )?;
        if profiles.is_empty() {
            return Err(HandshakeError::TlvValue(tag::PROFILE_OFFER));
        }
        let mut kems = flight::code_points(tag::KEM_OFFER, kems)?;
        let mut signatures = flight::code_points(tag::SIG_OFFER, signatures)?;
        let mut suites = flight::code_points(tag::AEAD_OFFER, suites)?;

        // The strongest profile that was offered and that we have.
        let profile = profiles
            .iter()
            .filter_map(|&code_point| Profile::from_code_point(code_point))
            .filter(|profile| profile.is_built())
            .max()
            .ok_or(HandshakeError::NoCommonProfile)?;
        let kem = kems
            .find_map(|code_point| {
                [Kem::X25519MlKem768, Kem::X25519MlKem1024]
                    .into_iter()
                    .find(|kem| kem.code_point() == code_point)
                    .filter(|&kem| kem.is_built() && profile.accepts_kem(kem))
            })
            .ok_or(HandshakeError::NoCommonKem)?;
        let signature = signatures
            .find_map(|code_point| {
                profile
                    .parameters()
                    .signatures
                    .iter()
                    .copied()
                    .find(|scheme| scheme.is_built() && scheme.code_point() == code_point)
            })
            .ok_or(HandshakeError::NoCommonSignature)?;
        let suite = suites
            .find_map(|code_point| {
                Suite::from_code_point(code_point).filter(|suite| config.suites.contains(suite))
            })
            .ok_or(HandshakeError::NoCommonSuite)?;

        let hash = profile.parameters().hash;
        transcript.select(hash);
        let (ciphertext, shared) =
            kem::encapsulate(share, &encapsulation).map_err(HandshakeError::Kem)?;
        flight::write_hello(
            FrameType::SERVER_HELLO,
            [
                Tlv {
                    tag: tag::PROFILE_SELECT,
                    value: &[profile.code_point()],
                },
                Tlv {
                    tag: tag::KEM_SELECT,
                    value: &kem.code_point().to_be_bytes(),
                },
                Tlv {
                    tag: tag::SIG_SELECT,
                    value: &signature.code_point().to_be_bytes(),
                },
                Tlv {
                    tag: tag::AEAD_SELECT,
                    value: &suite.code_point().to_be_bytes(),
                },
                Tlv {
                    tag: tag::KEM_CIPHERTEXT,
                    value: &*ciphertext,
                },
            ],
            &mut transcript,
            outbound,
        );
        let handshake_secret = HandshakeSecret::extract(hash, &shared);
        let (client_secret, server_secret) = handshake_secret.traffic_secrets(&transcript.point());
        auth::write_auth(
            &config.identity,
            Role::Server,
            suite,
            &server_secret,
            &mut transcript,
            outbound,
        );
        Ok(ExpectClientAuth {
            config,
            profile,
            suite,
            signature,
            handshake_secret,
            client_secret,
            transcript,
        })
    }
}

impl ExpectClientAuth {
    fn handle(self, header: &Header, payload: &mut [u8]) -> Result<Established, HandshakeError> {
        let mut transcript = self.transcript;
        let (peer, th_ccv) = auth::read_auth(
            header,
            payload,
            &Expected {
                role: Role::Client,
                suite: self.suite,
                signature: self.signature,
                secret: &self.client_secret,
                peers: &self.config.peers,
            },
            &mut transcript,
        )?;
        Ok(Established {
            side: Side::Responder,
            profile: self.profile,
            suite: self.suite,
            master: self.handshake_secret.into_master(&th_ccv),
            peer: peer.identity(),
        })
    }
}
