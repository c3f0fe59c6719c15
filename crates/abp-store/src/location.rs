//! Where a store is.

use std::path::PathBuf;

use crate::{PostgresOptions, Store, StoreError, StoreOptions, StoreReader};

/// Where a store is.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    /// A database file in this state directory.
    Directory(PathBuf),
    /// A schema of a Postgres database.
    Postgres(Box<PostgresOptions>),
}

impl StoreLocation {
    /// Opens the store. One in a directory is made where it is missing; the tables of one on Postgres are
    /// made by [`Store::migrate_postgres`] alone.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::open_postgres`].
    pub async fn open(&self, options: StoreOptions) -> Result<Store, StoreError> {
        match self {
            Self::Directory(directory) => Store::open(directory, options).await,
            Self::Postgres(postgres) => Store::open_postgres(postgres, options).await,
        }
    }

    /// Opens the store where there is one.
    ///
    /// # Errors
    /// As [`Store::open_existing`] and [`Store::open_postgres`].
    pub async fn open_existing(&self, options: StoreOptions) -> Result<Option<Store>, StoreError> {
        match self {
            Self::Directory(directory) => Store::open_existing(directory, options).await,
            Self::Postgres(postgres) => Store::open_postgres(postgres, options).await.map(Some),
        }
    }

    /// Opens the store for reading, where there is one.
    ///
    /// # Errors
    /// As [`StoreReader::open_existing`] and [`StoreReader::open_postgres`].
    pub async fn open_reader(&self) -> Result<Option<StoreReader>, StoreError> {
        match self {
            Self::Directory(directory) => StoreReader::open_existing(directory).await,
            Self::Postgres(postgres) => StoreReader::open_postgres(postgres).await.map(Some),
        }
    }
}
