//! `identity new` and `identity show`: the Ed25519 key that names a relay to
//! its peers. The private half is written to a file of mode 0600 and to nothing else.

use super::CliError;
use crate::crypto::Identity;
use crate::relay::context::load_identity;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Makes a new identity.
pub(crate) fn generate() -> Result<Identity, CliError> {
    let mut seed = Zeroizing::new([0_u8; 32]);
    getrandom::fill(&mut *seed)
        .map_err(|e| CliError(format!("the system gives no randomness: {e}")))?;
    Ok(Identity::from_seed(&seed))
}

/// Writes a new identity to `out`, which must not exist, and returns its public
/// key as configuration takes it.
pub(crate) fn new(out: &Path) -> Result<String, CliError> {
    let identity = generate()?;
    let pem = identity.to_pkcs8_pem();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(out)
        .map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => CliError(format!(
                "{} exists and is not overwritten: an identity that is lost cannot be made again",
                out.display()
            )),
            _ => CliError(format!("cannot create {}: {e}", out.display())),
        })?;
    let written = file
        .write_all(pem.as_bytes())
        .and_then(|()| file.sync_all());
    if let Err(e) = written {
        // Half a key helps nobody and would be in the way of the next attempt.
        let _ = std::fs::remove_file(out);
        return Err(CliError(format!("cannot write {}: {e}", out.display())));
    }
    Ok(identity.public().to_string())
}

/// The public key of the identity in `file`, as configuration takes it.
pub(crate) fn show(file: &Path) -> Result<String, CliError> {
    match load_identity(file) {
        Ok(identity) => Ok(identity.public().to_string()),
        Err(error) => Err(CliError(error.to_string())),
    }
}
