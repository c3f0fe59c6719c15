//! The store that a configuration names.

use abp_config::Config;
use abp_error::{AbpError, ErrorCode};
use abp_store::{PostgresOptions, StoreLocation};

/// The store of a configuration: a file in its state directory, or Postgres.
///
/// # Errors
/// Fails where a Postgres is named without the directory of its keys.
pub fn store_location(config: &Config) -> Result<StoreLocation, AbpError> {
    let store = &config.store;
    let Some(url) = &store.url else {
        return Ok(StoreLocation::Directory(config.state_dir.clone()));
    };
    let Some(keys) = &store.keys else {
        let message = "`store.url` names a database and `store.keys` no directory with its keys: set \
            `keys` in `[store]`, or ABP_STORE_KEYS, and run `abp migrate`";
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    };
    let mut postgres = PostgresOptions::new(url.expose(), keys);
    if let Some(schema) = &store.schema {
        postgres.schema.clone_from(schema);
    }
    if let Some(node) = &store.node {
        postgres.node.clone_from(node);
    }
    if let Some(connections) = store.max_connections {
        postgres.max_connections = connections;
    }
    Ok(StoreLocation::Postgres(Box::new(postgres)))
}
