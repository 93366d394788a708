//! Passwords that are given to commands.

use crate::exit::ExitError;

/// The first line of the standard input.
///
/// # Errors
/// If it cannot be read or is empty.
pub fn read_password() -> Result<String, ExitError> {
    let mut password = String::new();
    std::io::stdin().read_line(&mut password).map_err(|error| ExitError::Other(format!("the password: {error}")))?;
    password.truncate(password.trim_end_matches(['\r', '\n']).len());
    if password.is_empty() {
        return Err(ExitError::Usage("there is no password on the standard input".into()));
    }
    Ok(password)
}
