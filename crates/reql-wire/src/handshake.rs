//! How a connection begins: which protocol it speaks, and who the client is.

use crate::scram;
use serde_json::{Value, json};
use std::io;
use std::sync::LazyLock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const V0_1: u32 = 0x3f61_ba36;
const V0_2: u32 = 0x7230_81e1;
const V0_3: u32 = 0x5f75_e83e;
const V0_4: u32 = 0x400c_2d20;
const V1_0: u32 = 0x34c2_bdc3;
const JSON: u32 = 0x7e69_70c7;
/// The longest message of the handshake, and the longest key.
const MESSAGE_BYTES: usize = 2048;

/// What was agreed on.
pub(crate) struct Agreed {
    /// Whether one query is to be answered before the next one is read.
    pub(crate) one_by_one: bool,
}

pub(crate) const CLOSED: &str = "This node has users with passwords, which ReQL clients cannot give yet: their hashes do not fit \
                                 SCRAM. Use the Redis port, or a node without redis.users.";

/// The empty password of `admin`, with a salt of this process.
static ADMIN: LazyLock<(String, [u8; 32])> = LazyLock::new(|| {
    let salt = scram::random_text();
    let salted = scram::salted(b"", &base64_bytes(&salt), scram::ITERATIONS);
    (salt, salted)
});

fn base64_bytes(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

/// Takes a client's greeting. `None` if it was refused, and told why.
pub(crate) async fn greet(stream: &mut TcpStream, is_open: bool) -> io::Result<Option<Agreed>> {
    match stream.read_u32_le().await? {
        V1_0 => Ok(scram_login(stream, is_open).await?.then_some(Agreed { one_by_one: false })),
        magic @ (V0_3 | V0_4) => {
            let refusal = key_login(stream, is_open).await?;
            match refusal {
                None => stream.write_all(b"SUCCESS\0").await?,
                Some(reason) => refuse(stream, reason).await?,
            }
            Ok(refusal.is_none().then_some(Agreed { one_by_one: magic == V0_3 }))
        }
        V0_1 | V0_2 => {
            refuse(stream, "This protocol version has queries in protocol buffers, which are not spoken here.").await?;
            Ok(None)
        }
        _ => {
            refuse(
                stream,
                "Received an unsupported protocol version. This port is for RethinkDB queries. Does your client driver \
                 version not match the server?",
            )
            .await?;
            Ok(None)
        }
    }
}

async fn refuse(stream: &mut TcpStream, reason: &str) -> io::Result<()> {
    stream.write_all(format!("ERROR: {reason}\n\0").as_bytes()).await
}

async fn key_login(stream: &mut TcpStream, is_open: bool) -> io::Result<Option<&'static str>> {
    let length = stream.read_u32_le().await? as usize;
    if length > MESSAGE_BYTES {
        return Ok(Some("Client provided an authorization key that is too long."));
    }
    let mut key = vec![0; length];
    stream.read_exact(&mut key).await?;
    let protocol = stream.read_u32_le().await?;
    Ok(match () {
        () if protocol != JSON => Some("Only queries in JSON are spoken here."),
        () if !is_open => Some(CLOSED),
        () if !key.is_empty() => Some("Incorrect authorization key."),
        () => None,
    })
}

/// A message that ends with a zero byte; `None` if it is too long.
async fn message(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    loop {
        match stream.read_u8().await? {
            0 => return Ok(Some(message)),
            _ if message.len() + 1 >= MESSAGE_BYTES => return Ok(None),
            byte => message.push(byte),
        }
    }
}

async fn say(stream: &mut TcpStream, message: &Value) -> io::Result<()> {
    let mut text = message.to_string().into_bytes();
    text.push(0);
    stream.write_all(&text).await
}

type Refused = (u32, &'static str);

async fn scram_login(stream: &mut TcpStream, is_open: bool) -> io::Result<bool> {
    let version = concat!("2.4.4-tessera-", env!("CARGO_PKG_VERSION"));
    let hello = json!({
        "success": true, "min_protocol_version": 0, "max_protocol_version": 0, "server_version": version
    });
    say(stream, &hello).await?;
    let outcome = match exchange(stream, is_open).await? {
        Ok(signature) => {
            return say(stream, &json!({"success": true, "authentication": signature})).await.map(|()| true);
        }
        Err(refused) => refused,
    };
    let (code, error) = outcome;
    say(stream, &json!({"success": false, "error": error, "error_code": code})).await?;
    Ok(false)
}

async fn exchange(stream: &mut TcpStream, is_open: bool) -> io::Result<Result<String, Refused>> {
    const TOO_LONG: Refused = (7, "A message of the handshake has at most 2047 bytes.");
    let Some(first) = message(stream).await? else { return Ok(Err(TOO_LONG)) };
    let bare = match first_message(&first) {
        Ok(bare) => bare,
        Err(refused) => return Ok(Err(refused)),
    };
    if !is_open {
        return Ok(Err((20, CLOSED)));
    }
    let user = bare.split(',').find_map(|part| part.strip_prefix("n=")).unwrap_or_default().to_string();
    let Some(nonce) = bare.split(',').find_map(|part| part.strip_prefix("r=")) else {
        return Ok(Err((10, "The first message of the client has no nonce.")));
    };
    let (salt, salted) = &*ADMIN;
    let nonce = format!("{nonce}{}", scram::random_text());
    let challenge = format!("r={nonce},s={salt},i={}", scram::ITERATIONS);
    say(stream, &json!({"success": true, "authentication": challenge})).await?;
    let Some(last) = message(stream).await? else { return Ok(Err(TOO_LONG)) };
    let Ok(Value::Object(last)) = serde_json::from_slice(&last) else {
        return Ok(Err((8, "The message of the client is no JSON object.")));
    };
    let last = last.get("authentication").and_then(Value::as_str).unwrap_or_default();
    let Some((without_proof, proof)) = last.rsplit_once(",p=") else {
        return Ok(Err((10, "The last message of the client has no proof.")));
    };
    if without_proof != format!("c=biws,r={nonce}") {
        return Ok(Err((10, "The last message of the client does not belong to this exchange.")));
    }
    let exchanged = format!("{bare},{challenge},{without_proof}");
    Ok(match scram::check(salted, &exchanged, proof) {
        _ if user != "admin" => Err((17, "Unknown user")),
        None => Err((12, "Wrong password")),
        Some(signature) => Ok(format!("v={signature}")),
    })
}

/// What counts of the client's first message.
fn first_message(text: &[u8]) -> Result<String, Refused> {
    let Ok(Value::Object(message)) = serde_json::from_slice(text) else {
        return Err((8, "The message of the client is no JSON object."));
    };
    match message.get("protocol_version").map(Value::as_i64) {
        None => return Err((1, "Expected a field `protocol_version`.")),
        Some(Some(0)) => {}
        Some(_) => return Err((2, "Unsupported `protocol_version`.")),
    }
    match message.get("authentication_method").and_then(Value::as_str) {
        None => return Err((3, "Expected a field `authentication_method`.")),
        Some("SCRAM-SHA-256") => {}
        Some(_) => return Err((4, "Unsupported `authentication_method`.")),
    }
    let Some(authentication) = message.get("authentication").and_then(Value::as_str) else {
        return Err((5, "Expected a field `authentication`."));
    };
    let bare = authentication.strip_prefix("n,,").ok_or((15, "Channel binding is not supported."))?;
    Ok(bare.to_string())
}
