//! How a connection begins: which protocol it speaks, and who the client is. What is refused, and how, is as RethinkDB does it.

use crate::logins::{Logins, Refused};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::io;
use tessera_access::ScramPassword;
use tessera_face::begins_tls;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const V0_1: u32 = 0x3f61_ba36;
const V0_2: u32 = 0x7230_81e1;
const V0_3: u32 = 0x5f75_e83e;
const V0_4: u32 = 0x400c_2d20;
const V1_0: u32 = 0x34c2_bdc3;
const JSON: u32 = 0x7e69_70c7;
const PROTOBUF: u32 = 0x271f_fc41;
/// The longest message of the handshake, and the longest key.
const MESSAGE_BYTES: usize = 2048;

const NO_PROTOBUF: &str = "The PROTOBUF client protocol is no longer supported";

/// What was agreed on.
pub(crate) struct Agreed {
    /// Whether one query is to be answered before the next one is read.
    pub(crate) one_by_one: bool,
    /// The name of the user who has come in.
    pub(crate) user: String,
}

/// Where a client's greeting comes from, and where the answers go.
pub(crate) trait Line: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Line for S {}

/// Takes a client's greeting. `None` if it was refused, and told why. `nonce` is what the server adds to a client's own, never the same.
///
/// # Errors
/// Those of the stream; [`io::ErrorKind::InvalidData`] if the client speaks TLS and this node has no certificate.
pub(crate) async fn greet(
    stream: &mut impl Line,
    logins: &Logins,
    nonce: fn() -> String,
) -> io::Result<Option<Agreed>> {
    let magic = stream.read_u32_le().await?;
    let user = match magic {
        V1_0 => {
            let user = scram_login(stream, logins, nonce).await?;
            return Ok(user.map(|user| Agreed { one_by_one: false, user }));
        }
        V0_3 | V0_4 => key_login(stream, logins).await?,
        V0_1 | V0_2 => Err(NO_PROTOBUF.into()),
        // It could not read why.
        _ if begins_tls(&magic.to_le_bytes()) => {
            let reason = "the client speaks TLS, and this node has no certificate (`tls.certificate`)";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        _ => Err(
            "Received an unsupported protocol version. This port is for RethinkDB queries. Does your client driver \
             version not match the server?"
                .into(),
        ),
    };
    match user {
        Ok(user) => {
            stream.write_all(b"SUCCESS\0").await?;
            stream.flush().await?;
            Ok(Some(Agreed { one_by_one: magic == V0_3, user }))
        }
        Err(reason) => {
            stream.write_all(format!("ERROR: {reason}\n\0").as_bytes()).await?;
            stream.flush().await?;
            Ok(None)
        }
    }
}

/// The key is the password of the user `admin`. Returns the name of the user, or why the key is refused.
async fn key_login(stream: &mut impl Line, logins: &Logins) -> io::Result<Result<String, String>> {
    let length = stream.read_u32_le().await? as usize;
    if length > MESSAGE_BYTES {
        return Ok(Err("Client provided an authorization key that is too long.".into()));
    }
    let mut key = vec![0; length];
    stream.read_exact(&mut key).await?;
    Ok(match stream.read_u32_le().await? {
        JSON => logins.check_key(&key).await.map_err(Into::into),
        PROTOBUF => Err(NO_PROTOBUF.into()),
        other => Err(format!("Unrecognized protocol specified: '{other}'")),
    })
}

/// A message that ends with a zero byte; `None` if it is too long.
async fn message(stream: &mut impl Line) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    loop {
        match stream.read_u8().await? {
            0 => return Ok(Some(message)),
            _ if message.len() + 1 >= MESSAGE_BYTES => return Ok(None),
            byte => message.push(byte),
        }
    }
}

async fn say(stream: &mut impl Line, message: &Value) -> io::Result<()> {
    let mut text = message.to_string().into_bytes();
    text.push(0);
    stream.write_all(&text).await?;
    stream.flush().await
}

const TOO_LONG: Refused = (7, "Limited read buffer size.");
const NO_OBJECT: Refused = (8, "Invalid JSON object.");
const ENCODING: Refused = (10, "Invalid encoding");
const WRONG_PASSWORD: Refused = (12, "Wrong password");
const NO_USER: Refused = (17, "Unknown user");
const OTHER: Refused = (20, "Other error");

/// The name of the user who has come in.
async fn scram_login(stream: &mut impl Line, logins: &Logins, nonce: fn() -> String) -> io::Result<Option<String>> {
    let version = concat!("2.4.4-tessera-", env!("CARGO_PKG_VERSION"));
    let hello = json!({
        "success": true, "min_protocol_version": 0, "max_protocol_version": 0, "server_version": version
    });
    say(stream, &hello).await?;
    match exchange(stream, logins, nonce).await? {
        Ok((user, signature)) => {
            say(stream, &json!({"success": true, "authentication": format!("v={signature}")})).await?;
            Ok(Some(user))
        }
        Err((code, error)) => {
            say(stream, &json!({"success": false, "error": error, "error_code": code})).await?;
            Ok(None)
        }
    }
}

/// The user who has proven who it is, and the server's signature.
async fn exchange(
    stream: &mut impl Line,
    logins: &Logins,
    nonce: fn() -> String,
) -> io::Result<Result<(String, String), Refused>> {
    let Some(text) = message(stream).await? else { return Ok(Err(TOO_LONG)) };
    let first = match First::read(&text) {
        Ok(first) => first,
        Err(refused) => return Ok(Err(refused)),
    };
    if let Some(closed) = logins.closed() {
        return Ok(Err(closed));
    }
    let (password, exists) = logins.provable(&first.user).await;
    let nonce = format!("{}{}", first.nonce, nonce());
    let (salt, iterations) = password.challenge();
    let challenge = format!("r={nonce},s={salt},i={iterations}");
    say(stream, &json!({"success": true, "authentication": challenge})).await?;
    let Some(text) = message(stream).await? else { return Ok(Err(TOO_LONG)) };
    let outcome = proven(&first, &nonce, &challenge, &text, &password);
    Ok(match outcome {
        Err(WRONG_PASSWORD) if !exists => Err(NO_USER),
        outcome => outcome.map(|signature| (first.user, signature)),
    })
}

/// The signature of the server, for a client that has proven that it knows the password.
fn proven(
    first: &First,
    nonce: &str,
    challenge: &str,
    text: &[u8],
    password: &ScramPassword,
) -> Result<String, Refused> {
    let last = authentication(&object(text)?)?;
    let (mut binding, mut said_nonce, mut proof) = (None, None, None);
    for part in last.split(',') {
        match part.split_once('=') {
            Some(("c", value)) => binding = Some(value),
            Some(("r", value)) => said_nonce = Some(value),
            Some(("p", value)) => proof = Some(value),
            _ => return Err(ENCODING),
        }
    }
    let (Some(binding), Some(said_nonce)) = (binding, said_nonce) else { return Err(ENCODING) };
    if STANDARD.decode(binding).ok().as_deref() != Some(first.header.as_bytes()) {
        return Err(ENCODING);
    }
    let proof = proof.map(|proof| STANDARD.decode(proof).ok().and_then(|proof| proof.try_into().ok()));
    if proof == Some(None) {
        return Err(WRONG_PASSWORD);
    }
    if said_nonce != nonce {
        return Err(OTHER);
    }
    let Some(proof) = proof.flatten() else { return Err(ENCODING) };
    let without_proof = last.rsplit_once(",p=").map_or(&*last, |(before, _)| before);
    let exchanged = format!("{},{challenge},{without_proof}", first.bare);
    password.check(&exchanged, &proof).ok_or(WRONG_PASSWORD)
}

fn object(text: &[u8]) -> Result<Map<String, Value>, Refused> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(message)) => Ok(message),
        _ => Err(NO_OBJECT),
    }
}

fn authentication(message: &Map<String, Value>) -> Result<String, Refused> {
    let text = message.get("authentication").and_then(Value::as_str);
    text.map(str::to_string).ok_or((5, "Expected a string for `authentication`."))
}

/// The client's first message.
struct First {
    /// What it says about the channel, with its comma.
    header: String,
    /// The rest, which counts for the proof.
    bare: String,
    user: String,
    nonce: String,
}

impl First {
    fn read(text: &[u8]) -> Result<Self, Refused> {
        let message = object(text)?;
        let version = message.get("protocol_version").and_then(Value::as_f64);
        match version.ok_or((1, "Expected a number for `protocol_version`."))? {
            0.0 => {}
            _ => return Err((2, "Unsupported `protocol_version`.")),
        }
        let method = message.get("authentication_method").and_then(Value::as_str);
        match method.ok_or((3, "Expected a string for `authentication_method`."))? {
            "SCRAM-SHA-256" => {}
            _ => return Err((4, "Unsupported `authentication_method`.")),
        }
        let text = authentication(&message)?;
        let header = text.strip_prefix("n,").and_then(|rest| Some(2 + rest.find(',')? + 1));
        let (header, bare) = text.split_at(header.ok_or((15, "Channel binding is not supported"))?);
        let (mut user, mut nonce) = (None, None);
        for part in bare.split(',') {
            match part.split_once('=') {
                Some(("n", value)) => user = Some(value),
                Some(("r", value)) => nonce = Some(value),
                Some(("m", _)) => return Err((11, "Extensions not supported")),
                _ => return Err(ENCODING),
            }
        }
        let (Some(user), Some(nonce)) = (user, nonce) else { return Err(ENCODING) };
        let user = user_name(user)?;
        Ok(Self { header: header.into(), bare: bare.into(), user, nonce: nonce.into() })
    }
}

/// Commas and equals signs come as `=2C` and `=3D`.
fn user_name(text: &str) -> Result<String, Refused> {
    let mut parts = text.split('=');
    let mut name = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (sign, rest) = match () {
            () if part.starts_with("2C") => (',', &part[2..]),
            () if part.starts_with("3D") => ('=', &part[2..]),
            () => return Err((18, "Invalid username encoding")),
        };
        name.push(sign);
        name.push_str(rest);
    }
    if name.is_empty() { Err((18, "Empty username")) } else { Ok(name) }
}
