//! A client of another make, for what an honest one never sends.

use super::*;

/// A client of another make, which can be made to send anything.
pub(super) struct Client {
    pub(super) decapsulator: Decapsulator,
    pub(super) hello: Vec<(u16, Vec<u8>)>,
}

/// What a dishonest client may change before it seals CLIENT_AUTH.
pub(super) struct AuthParts {
    pub(super) tlvs: Vec<(u16, Vec<u8>)>,
    pub(super) header: Header,
}

impl Client {
    pub(super) fn new() -> Self {
        let decapsulator = Decapsulator::new(&KeyMaterial::draw(&mut SeededRandom::new(5)));
        let hello = vec![
            (tag::PROFILE_OFFER, vec![1]),
            (tag::KEM_OFFER, vec![0x11, 0xec]),
            (tag::SIG_OFFER, vec![0x08, 0x07]),
            (tag::AEAD_OFFER, vec![0, 1]),
            (tag::KEM_SHARE, decapsulator.share().to_vec()),
        ];
        Self {
            decapsulator,
            hello,
        }
    }

    #[allow(clippy::type_complexity)]
    pub(super) fn read_server_auth(
        &self,
        server: &[u8],
    ) -> Result<(Transcript, HandshakeSecret, HandshakeTrafficSecret), HandshakeError> {
        let mut transcript = Transcript::new();
        transcript.select(Hash::Sha256);
        let mut absorb = |frame_type, tlvs: &[(u16, Vec<u8>)]| {
            transcript.add_frame_type(frame_type);
            for (tag, value) in tlvs {
                transcript.add_tlv(&Tlv { tag: *tag, value });
            }
        };
        let server_tlvs = tlvs_of(server);
        absorb(FrameType::CLIENT_HELLO, &self.hello);
        absorb(FrameType::SERVER_HELLO, &server_tlvs);
        let shared = self.decapsulator.decapsulate(&server_tlvs[4].1).unwrap();
        let handshake = HandshakeSecret::extract(Hash::Sha256, &shared);
        let (client_secret, server_secret) = handshake.traffic_secrets(&transcript.point());
        let hello_len = Header::LEN + Header::decode(server).unwrap().payload_length as usize;
        let mut auth_frame = server[hello_len..].to_vec();
        let header = Header::decode(&auth_frame).unwrap();
        auth::read_auth(
            &header,
            &mut auth_frame[Header::LEN..],
            &auth::Expected {
                role: Role::Server,
                suite: Suite::Aes256Gcm,
                signature: crate::crypto::SignatureScheme::Ed25519,
                secret: &server_secret,
                peers: &PeerPolicy::Any,
            },
            &mut transcript,
        )?;
        Ok((transcript, handshake, client_secret))
    }

    /// Goes through with the handshake, changing the AUTH TLVs before they are
    /// sealed with the right key.
    pub(super) fn auth(
        &self,
        responder: &mut Responder,
        change: impl FnOnce(&mut AuthParts),
    ) -> Result<Progress, HandshakeError> {
        responder.feed(&hello(FrameType::CLIENT_HELLO, &self.hello))?;
        let server = responder.transmit();
        let (mut transcript, _, client_secret) = self.read_server_auth(&server)?;
        let mut honest = Vec::new();
        auth::write_auth(
            &client_identity(),
            Role::Client,
            Suite::Aes256Gcm,
            &client_secret,
            &mut transcript,
            &mut honest,
        );
        let key = || {
            client_secret
                .traffic_secret(Suite::Aes256Gcm)
                .key_iv()
                .into_traffic_key(Suite::Aes256Gcm)
        };
        let header = Header::decode(&honest).unwrap();
        let plaintext = key().open(&header, &mut honest[Header::LEN..]).unwrap();
        let tlvs = Tlvs::new(plaintext)
            .map(|tlv| tlv.map(|tlv| (tlv.tag, tlv.value.to_vec())).unwrap())
            .collect();
        let mut parts = AuthParts { tlvs, header };
        change(&mut parts);
        let mut sealed = vec![0; Header::LEN];
        for (tag, value) in &parts.tlvs {
            Tlv { tag: *tag, value }.encode(&mut sealed);
        }
        sealed.resize(sealed.len() + TAG_LEN, 0);
        parts.header.payload_length = (sealed.len() - Header::LEN) as u32;
        key().seal(&parts.header, &mut sealed);
        responder.feed(&sealed)
    }

    pub(super) fn finish(&self, responder: &mut Responder, change: impl FnOnce(&mut AuthParts)) {
        done(self.auth(responder, change));
    }
}
