//! The AUTH frames (handshake binding §6): identity, CertVerify and Finished
//! under the sender's handshake key. Who reads one gets a proof that all of it
//! was verified, and only that proof makes an association.

use super::flight::{self, Extensions};
use super::{HandshakeError, PeerPolicy};
use crate::crypto::cert_verify::{self, Role};
use crate::crypto::{
    HandshakeTrafficSecret, Identity, IdentityPublic, SignatureScheme, Suite, TAG_LEN, Transcript,
    TranscriptHash,
};
use crate::wire::{Flags, FrameType, Header, Tlv, tlv::tag};

/// A peer whose CertVerify and Finished were verified and whose identity is
/// permitted. Made only by [`read_auth`].
pub(super) struct VerifiedPeer(IdentityPublic);

impl VerifiedPeer {
    pub(super) const fn identity(&self) -> IdentityPublic {
        self.0
    }
}

const AUTH_TAGS: [u16; 3] = [tag::IDENTITY_KEY, tag::CERT_VERIFY, tag::FINISHED];

const fn frame_type(role: Role) -> FrameType {
    match role {
        Role::Client => FrameType::CLIENT_AUTH,
        Role::Server => FrameType::SERVER_AUTH,
    }
}

/// Appends our AUTH frame to `out`, absorbs it, and gives `TH_sCV` or `TH_cCV`.
pub(super) fn write_auth(
    identity: &Identity,
    role: Role,
    suite: Suite,
    secret: &HandshakeTrafficSecret,
    transcript: &mut Transcript,
    out: &mut Vec<u8>,
) -> TranscriptHash {
    let frame_type = frame_type(role);
    let start = out.len();
    out.resize(start + Header::LEN, 0);
    let mut add = |tag, value: &[u8], transcript: &mut Transcript| {
        let tlv = Tlv { tag, value };
        tlv.encode(out);
        transcript.add_tlv(&tlv);
        transcript.point()
    };
    transcript.add_frame_type(frame_type);
    let public = identity.public();
    let through_identity = add(tag::IDENTITY_KEY, public.as_octets(), transcript);
    let signature = cert_verify::sign(identity, role, &through_identity);
    let through_cert_verify = add(tag::CERT_VERIFY, &signature, transcript);
    let verify_data = secret.finished_key().verify_data(&through_cert_verify);
    add(tag::FINISHED, &verify_data, transcript);
    out.resize(out.len() + TAG_LEN, 0);
    let frame = &mut out[start..];
    let header = flight::header(frame_type, Flags::ENC, frame.len() - Header::LEN);
    secret
        .traffic_secret(suite)
        .key_iv()
        .into_traffic_key(suite)
        .seal(&header, frame);
    through_cert_verify
}

/// What [`read_auth`] measures a peer's AUTH frame against.
pub(super) struct Expected<'a> {
    /// The peer's role.
    pub(super) role: Role,
    /// The negotiated suite.
    pub(super) suite: Suite,
    /// The negotiated signature scheme.
    pub(super) signature: SignatureScheme,
    /// The peer's handshake traffic secret.
    pub(super) secret: &'a HandshakeTrafficSecret,
    /// Permitted identities.
    pub(super) peers: &'a PeerPolicy,
}

/// Opens and verifies the peer's AUTH frame, absorbs it, and gives the proof
/// and `TH_sCV` or `TH_cCV`. The identity policy comes last, so that its error
/// names an identity that was proved.
pub(super) fn read_auth(
    header: &Header,
    payload: &mut [u8],
    expected: &Expected<'_>,
    transcript: &mut Transcript,
) -> Result<(VerifiedPeer, TranscriptHash), HandshakeError> {
    let frame_type = frame_type(expected.role);
    flight::check_frame(header, payload, frame_type, Flags::ENC)?;
    let plaintext = expected
        .secret
        .traffic_secret(expected.suite)
        .key_iv()
        .into_traffic_key(expected.suite)
        .open(header, payload)
        .map_err(|_| HandshakeError::AuthSeal)?;
    let [identity, cert_verify, finished] =
        flight::read_flight(plaintext, AUTH_TAGS, Extensions::Forbidden, |_| ())?;
    let identity_octets: [u8; IdentityPublic::LEN] = identity
        .try_into()
        .map_err(|_| HandshakeError::TlvValue(tag::IDENTITY_KEY))?;
    let public = IdentityPublic::from_octets(identity_octets);

    transcript.add_frame_type(frame_type);
    let mut add = |tag, value| {
        transcript.add_tlv(&Tlv { tag, value });
        transcript.point()
    };
    let through_identity = add(tag::IDENTITY_KEY, identity);
    cert_verify::verify(
        cert_verify,
        expected.signature,
        expected.role,
        &through_identity,
        &public,
    )
    .map_err(HandshakeError::CertVerify)?;
    let through_cert_verify = add(tag::CERT_VERIFY, cert_verify);
    expected
        .secret
        .finished_key()
        .verify(finished, &through_cert_verify)
        .map_err(|_| HandshakeError::Finished)?;
    add(tag::FINISHED, finished);
    if !expected.peers.permits(&public) {
        return Err(HandshakeError::IdentityNotAllowed(public));
    }
    Ok((VerifiedPeer(public), through_cert_verify))
}
