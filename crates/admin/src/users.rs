//! The users of the cluster: who there is, and how they are made, changed and dropped. Passwords and their hashes are never shown.

use crate::body::Body;
use crate::doors::Nothing;
use crate::failure::{Failure, Reply};
use crate::server::AdminServer;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tessera_access::{Password, ScramPassword};
use tessera_cluster::{CatalogCommand, PasswordHash};
use tessera_types::{PermissionChanges, Permissions, Right, Rights, Scope};

/// What is decided in one place.
#[derive(Debug, Serialize)]
struct PlaceInfo {
    #[serde(flatten)]
    scope: ScopeInfo,
    permissions: Permissions,
}

#[derive(Debug, Default, Serialize)]
struct ScopeInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
}

/// A user as the API shows one.
#[derive(Debug, Serialize)]
pub(crate) struct UserInfo {
    name: String,
    has_password: bool,
    /// Whether the user stands in the configuration of the node that is asked.
    is_configured: bool,
    places: Vec<PlaceInfo>,
}

fn places(rights: &Rights) -> Vec<PlaceInfo> {
    let place = |(scope, permissions)| {
        let scope = match scope {
            Scope::Global => ScopeInfo::default(),
            Scope::Database(name) => ScopeInfo { database: Some(name), table: None },
            Scope::Table(name) => ScopeInfo { database: None, table: Some(name) },
        };
        PlaceInfo { scope, permissions }
    };
    rights.places().map(place).collect()
}

pub(crate) async fn list(State(server): State<AdminServer>) -> Json<Vec<UserInfo>> {
    let (authenticator, catalog) = (&server.authenticator, server.store().catalog());
    let info = |name: String| {
        let user = authenticator.named(&name).map(|user| (user.password.is_some(), user.rights));
        let entry = || catalog.users().get(&name).map(|entry| (entry.password.is_some(), entry.rights));
        let (has_password, rights) = user.or_else(entry)?;
        let is_configured = authenticator.is_configured(&name);
        Some(UserInfo { has_password, is_configured, places: places(&rights), name })
    };
    Json(authenticator.names().into_iter().filter_map(info).collect())
}

fn check_not_configured(server: &AdminServer, name: &str) -> Result<(), Failure> {
    match server.authenticator.is_configured(name) {
        true => Err(Failure::unprocessable(
            "configured_user",
            format!("the user '{name}' stands in the configuration of this node (`redis.users`), and is changed there"),
        )),
        false => Ok(()),
    }
}

/// A password, or what `tessera hash-password --scram` makes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    /// `null` says that none is to be needed.
    #[serde(default, deserialize_with = "said")]
    password: Option<Option<String>>,
    password_hash: Option<String>,
}

/// A field that is there, even if it is `null`.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl NewPassword {
    async fn hash(self) -> Result<Option<PasswordHash>, Failure> {
        let refuse = |reason| Failure::unprocessable("invalid_password", reason);
        let text = match (self.password, self.password_hash) {
            (Some(_), Some(_)) => return Err(refuse("give `password` or `password_hash`; one is enough")),
            (None, None) => return Err(refuse("give `password`, `null` for none, or `password_hash`")),
            (Some(None), None) => return Ok(None),
            (None, Some(hash)) => match Password::from_salted(&hash) {
                Some(Password::Scram(_)) => hash,
                _ => return Err(refuse("password_hash is not what `tessera hash-password --scram` prints")),
            },
            (Some(Some(clear)), None) if clear.is_empty() => {
                return Err(refuse("an empty password protects nothing: say `null` if none is to be needed"));
            }
            (Some(Some(clear)), None) => {
                let hash = move || ScramPassword::new(clear.as_bytes(), ScramPassword::ITERATIONS).to_string();
                let hash = tokio::task::spawn_blocking(hash).await;
                hash.map_err(|_| refuse("the password could not be hashed"))?
            }
        };
        Ok(Some(PasswordHash(text)))
    }
}

/// A user to make.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewUser {
    name: String,
    #[serde(default, deserialize_with = "said")]
    password: Option<Option<String>>,
    password_hash: Option<String>,
}

pub(crate) async fn create(State(server): State<AdminServer>, Body(user): Body<NewUser>) -> Reply<Value> {
    check_not_configured(&server, &user.name)?;
    let NewUser { name, password, password_hash } = user;
    let password = NewPassword { password, password_hash }.hash().await?;
    server.change(CatalogCommand::CreateUser { name: name.clone(), password, rights: Rights::default() }).await?;
    Ok(Json(json!({ "name": name })))
}

/// Gives a user another password, or none if none is given.
pub(crate) async fn alter(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(password): Body<NewPassword>,
) -> Reply<Value> {
    check_not_configured(&server, &name)?;
    let password = password.hash().await?;
    change(&server, CatalogCommand::AlterUser { name: name.clone(), password }, name).await
}

pub(crate) async fn drop(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Reply<Value> {
    check_not_configured(&server, &name)?;
    change(&server, CatalogCommand::DropUser { name: name.clone() }, name).await
}

/// Rights that are to be given, denied, or (`null`) left to a wider place: everywhere, in a database or in a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    database: Option<String>,
    table: Option<String>,
    permissions: serde_json::Map<String, Value>,
}

impl Grant {
    fn read(self) -> Result<(Scope, PermissionChanges), Failure> {
        let refuse = |reason: String| Failure::unprocessable("invalid_grant", reason);
        let scope = match (self.database, self.table) {
            (None, None) => Scope::Global,
            (Some(database), None) => Scope::Database(database),
            (None, Some(table)) => Scope::Table(table),
            (Some(_), Some(_)) => {
                let reason = "give `database` or `table`, not both: the name of a table of documents is DATABASE.NAME";
                return Err(refuse(reason.into()));
            }
        };
        let mut changes = PermissionChanges::new();
        for (name, decision) in &self.permissions {
            let right = Right::named(name)
                .ok_or_else(|| refuse(format!("'{name}' is no right; known: read, write, config, connect")))?;
            let decision = match decision {
                Value::Bool(is_given) => Some(*is_given),
                Value::Null => None,
                _ => return Err(refuse(format!("'{name}' is true, false or null"))),
            };
            changes.insert(right, decision);
        }
        Ok((scope, changes))
    }
}

pub(crate) async fn grant(
    State(server): State<AdminServer>,
    Path(name): Path<String>,
    Body(grant): Body<Grant>,
) -> Reply<Value> {
    check_not_configured(&server, &name)?;
    let (scope, changes) = grant.read()?;
    change(&server, CatalogCommand::Grant { user: name.clone(), scope, changes }, name).await
}

/// What takes something away tells which nodes may not have heard of it.
async fn change(server: &AdminServer, command: CatalogCommand, name: String) -> Reply<Value> {
    let (_, behind) = server.store().change_catalog_and_tell(command).await??;
    Ok(Json(json!({ "name": name, "nodes_behind": behind })))
}
