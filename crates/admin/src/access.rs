//! Who may use the API: whoever has the token, or logs in as a user who may administer the cluster.

use crate::failure::Failure;
use crate::server::AdminServer;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tessera_access::NotLetIn;
use tessera_types::{ADMIN, Right};

/// What a request shows of who sends it.
enum Shown {
    Token(String),
    Password { name: String, password: Vec<u8> },
    Nothing,
}

fn shown(request: &Request) -> Shown {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, rest)) = header.and_then(|header| header.split_once(' ')) else { return Shown::Nothing };
    if scheme == "Bearer" {
        return Shown::Token(rest.into());
    }
    let pair = STANDARD.decode(rest.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("Basic"));
    let parts = pair.as_ref().and_then(|pair| {
        let colon = pair.iter().position(|byte| *byte == b':')?;
        Some((std::str::from_utf8(&pair[..colon]).ok()?.to_string(), pair[colon + 1..].to_vec()))
    });
    parts.map_or(Shown::Nothing, |(name, password)| Shown::Password { name, password })
}

/// Without a token in the configuration and a password of `admin`, everybody may use the API, but for what is about users where the
/// configuration names some.
pub(crate) async fn authenticate(State(server): State<AdminServer>, request: Request, next: Next) -> Response {
    let is_about_users = request.uri().path().starts_with("/v1/users");
    match refusal(&server, shown(&request), is_about_users).await {
        None => next.run(request).await,
        Some(refusal) => refusal,
    }
}

/// The user who asks queries by a request.
#[derive(Clone)]
pub(crate) struct QueryUser(pub(crate) String);

/// Queries are asked by a user, who may do what this user may do through the ReQL port: whoever logs in, or `admin` where nobody has to.
/// The token stands for `admin`, too.
pub(crate) async fn log_in(State(server): State<AdminServer>, mut request: Request, next: Next) -> Response {
    let user = match shown(&request) {
        Shown::Token(token) if server.token.as_ref().is_some_and(|right| right.is(&token)) => ADMIN.into(),
        Shown::Nothing if server.token.is_none() && server.authenticator.is_open() => ADMIN.into(),
        Shown::Token(_) | Shown::Nothing => return wrong(NO_LOGIN),
        Shown::Password { name, password } => match server.authenticator.log_in(&name, &password).await {
            Ok(user) if user.password.is_some() => user.name,
            Ok(_) | Err(NotLetIn::Wrong) => return wrong(NO_LOGIN),
            Err(NotLetIn::Busy) => return busy(),
        },
    };
    request.extensions_mut().insert(QueryUser(user));
    next.run(request).await
}

const NO_LOGIN: &str = "queries need the header `Authorization: Basic ...` with the name and the password of a user";

fn refuse(status: StatusCode, reason: &str) -> Response {
    Failure::of_status(status, reason).into_response()
}

fn wrong(reason: &str) -> Response {
    let mut response = refuse(StatusCode::UNAUTHORIZED, reason);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"tessera\""));
    response
}

fn busy() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "too many passwords are being checked at this moment")
}

async fn refusal(server: &AdminServer, shown: Shown, is_about_users: bool) -> Option<Response> {
    let is_token = matches!((&shown, &server.token), (Shown::Token(token), Some(right)) if right.is(token));
    let is_closed = match is_about_users {
        // Who may give rights has all of them, also to the records that users in the configuration are to protect.
        true => !server.authenticator.is_open(),
        false => server.authenticator.is_closed_by_admin(),
    };
    if is_token || server.token.is_none() && !is_closed {
        return None;
    }
    let wrong = || {
        wrong(
            "this needs the header `Authorization: Bearer TOKEN` with the token of `admin.token_sha256`, or `Authorization: Basic ...` with \
             the name and the password of a user with the right `config` (`access` of `admin` under redis.users)",
        )
    };
    let Shown::Password { name, password } = shown else { return Some(wrong()) };
    match server.authenticator.log_in(&name, &password).await {
        // A name alone is not enough here, whatever it is elsewhere.
        Ok(user) if user.password.is_none() => Some(wrong()),
        Ok(user) if user.rights.may(Right::Config) => None,
        Ok(_) => Some(refuse(StatusCode::FORBIDDEN, "this user has not the right `config`")),
        Err(NotLetIn::Wrong) => Some(wrong()),
        Err(NotLetIn::Busy) => Some(busy()),
    }
}
