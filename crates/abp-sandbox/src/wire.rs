//! Paths in launch documents: as the bytes they are, because a path need not be text.

/// One path.
pub(crate) mod path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(Into::into)
    }
}

/// A list of paths.
pub(crate) mod paths {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| path.as_os_str()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<OsString>::deserialize(from)?;
        Ok(paths.into_iter().map(Into::into).collect())
    }
}

/// Mounts by path, as a list of pairs.
pub(crate) mod mounts {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::plan::MountKind;

    pub(crate) fn serialize<S: Serializer>(
        mounts: &BTreeMap<PathBuf, MountKind>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(mounts.iter().map(|(path, kind)| (path.as_os_str(), kind)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<PathBuf, MountKind>, D::Error> {
        let mounts = Vec::<(OsString, MountKind)>::deserialize(from)?;
        let mounts = mounts.into_iter().map(|(path, kind)| (path.into(), kind));
        Ok(mounts.collect())
    }
}
