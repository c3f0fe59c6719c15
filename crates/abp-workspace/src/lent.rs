//! Ignored directories (dependencies, build output) that a copy lends: each is an overlay of its own over the
//! directory of the source, so that a build can use and change it, and nothing of that is kept.

use std::collections::BTreeSet;
use std::path::Path;

use abp_sandbox::Overlay;

use crate::Error;
use crate::dir::{Dir, path_of};
use crate::mask::{topmost, write_mask};
use crate::stage::{LENT, MASK, Stage, TREE, WORK};

/// Makes the layers of lent directories. `masked` are the paths that the policy hides.
pub(crate) fn lend(
    stage: &Stage,
    source: &Dir,
    source_path: &Path,
    lent: &BTreeSet<Vec<u8>>,
    masked: &[Vec<u8>],
) -> Result<Vec<Overlay>, Error> {
    if lent.is_empty() {
        return Ok(Vec::new());
    }
    let all = stage.create_dir(LENT)?;
    let mut overlays = Vec::new();
    for (number, path) in lent.iter().enumerate() {
        let name = number.to_string();
        let make = || {
            let own = all.create_dir(name.as_bytes(), 0o700)?;
            own.create_dir(TREE.as_bytes(), 0o700)?;
            own.create_dir(WORK.as_bytes(), 0o700)?;
            let mask = own.create_dir(MASK.as_bytes(), 0o700)?;
            let inside = |masked: &Vec<u8>| {
                let rest = masked.strip_prefix(path.as_slice())?;
                Some(rest.strip_prefix(b"/")?.to_vec())
            };
            let inside: BTreeSet<Vec<u8>> = masked.iter().filter_map(inside).collect();
            write_mask(&mask, &source.open_dir(path)?, &topmost(&inside), &[])
        };
        make().map_err(|error| stage.failed(error))?;
        let layers = stage.path.join(LENT).join(name);
        overlays.push(Overlay {
            target: stage.path.join(TREE).join(path_of(path)),
            lower: vec![layers.join(MASK), source_path.join(path_of(path))],
            upper: layers.join(TREE),
            work: layers.join(WORK),
        });
    }
    Ok(overlays)
}
