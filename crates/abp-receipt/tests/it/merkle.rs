//! Trees and proofs: the published vectors, and what must hold for every tree.

use std::fs;
use std::path::{Path, PathBuf};

use abp_receipt::merkle::{empty_root, leaf_hash, node_hash, root};
use abp_receipt::{
    Frontier, Hash, consistency_proof, inclusion_proof, verify_consistency, verify_inclusion,
};
use abp_testkit::{shared_dir, skip};
use base64::Engine as _;
use proptest::prelude::*;
use serde_json::Value;

fn leaves(count: u64) -> Vec<Hash> {
    (0..count).map(|n| leaf_hash(&n.to_be_bytes())).collect()
}

/// The tree by its definition, which shares no code with what is tested.
fn defined_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        _ => {
            let mut split = 1;
            while split * 2 < leaves.len() {
                split *= 2;
            }
            let (left, right) = leaves.split_at(split);
            node_hash(&defined_root(left), &defined_root(right))
        }
    }
}

fn flip(hash: &mut Hash, bit: usize) {
    let mut bytes = *hash.as_bytes();
    bytes[bit / 8 % 32] ^= 1 << (bit % 8);
    *hash = Hash::from_bytes(bytes);
}

/// A leaf and a node can never be taken for each other.
#[test]
fn prefixes() {
    let (a, b) = (Hash::of(b"a"), Hash::of(b"b"));
    let bytes = [&[0][..], a.as_bytes(), b.as_bytes()].concat();
    assert_eq!(leaf_hash(&bytes[1..]), Hash::of(&bytes));
    let bytes = [&[1][..], a.as_bytes(), b.as_bytes()].concat();
    assert_eq!(node_hash(&a, &b), Hash::of(&bytes));
    assert_eq!(empty_root(), Hash::of(b""));
}

#[test]
fn every_small_tree() {
    let all = leaves(40);
    let mut frontier = Frontier::default();
    for size in 0..=40_usize {
        let tree = &all[..size];
        let expected = defined_root(tree);
        assert_eq!(root(tree), expected, "root of {size}");
        assert_eq!(frontier.root(), expected, "frontier of {size}");
        let json = serde_json::to_string(&frontier).expect("plain data");
        assert_eq!(
            serde_json::from_str::<Frontier>(&json).expect("itself"),
            frontier
        );
        for (index, leaf) in (0..).zip(tree) {
            let proof = inclusion_proof(tree, index).expect("a leaf");
            for other in 0..size as u64 {
                let verdict = verify_inclusion(leaf, other, size as u64, &proof, &expected);
                assert_eq!(
                    verdict.is_ok(),
                    other == index,
                    "{index} as {other} in {size}"
                );
            }
        }
        for old in 1..=size as u64 {
            let old_root = root(&all[..usize::try_from(old).expect("small")]);
            let proof = consistency_proof(tree, old).expect("a beginning");
            let verdict = verify_consistency(old, size as u64, &proof, &old_root, &expected);
            assert_eq!(verdict, Ok(()), "{old} in {size}");
        }
        if size < 40 {
            frontier.push(all[size]);
        }
    }
}

#[test]
fn what_is_no_tree_is_refused() {
    let three = leaves(3);
    assert!(inclusion_proof(&three, 3).is_err());
    assert!(consistency_proof(&three, 0).is_err());
    assert!(consistency_proof(&three, 4).is_err());
    assert!(Frontier::from_parts(3, vec![three[0]]).is_err());
    assert!(Frontier::from_parts(1 << 53, vec![three[0]]).is_err());
    assert!(serde_json::from_str::<Frontier>(r#"{"size":1,"peaks":[]}"#).is_err());
}

type Verify<'a> = &'a dyn Fn(&[Hash], &Hash) -> bool;

proptest! {
    /// E4: whatever bit of a proof or a root is changed, and whatever is added or taken away.
    #[test]
    fn e4_a_changed_proof_fails(size in 2..200_u64, at in any::<u64>(), bit in any::<usize>()) {
        let tree = leaves(size);
        let whole = root(&tree);
        let index = at % size;
        let leaf = tree[usize::try_from(index).expect("small")];
        let proof = inclusion_proof(&tree, index).expect("a leaf");
        let old = 1 + at % (size - 1);
        let old_root = root(&tree[..usize::try_from(old).expect("small")]);
        let link = consistency_proof(&tree, old).expect("a beginning");
        let included = |proof: &[Hash], root: &Hash| verify_inclusion(&leaf, index, size, proof, root).is_ok();
        let continued = |proof: &[Hash], root: &Hash| verify_consistency(old, size, proof, root, &whole).is_ok();
        let honest: [(&Vec<Hash>, &Hash, Verify<'_>); 2] =
            [(&proof, &whole, &included), (&link, &old_root, &continued)];
        for (proof, root, verify) in honest {
            prop_assert!(verify(proof, root));
            let mut other_root = *root;
            flip(&mut other_root, bit);
            prop_assert!(!verify(proof, &other_root));
            let mut changed = proof.clone();
            let place = bit % changed.len();
            flip(&mut changed[place], bit);
            prop_assert!(!verify(&changed, root));
            changed.clone_from(proof);
            changed.remove(place);
            prop_assert!(!verify(&changed, root));
            changed.clone_from(proof);
            changed.insert(place, whole);
            prop_assert!(!verify(&changed, root));
        }
    }

    /// Sizes, indices and proofs that belong to nothing are refused, and nothing panics.
    #[test]
    fn foreign_proofs_fail(numbers in any::<[u64; 2]>(), count in 0..70_u64) {
        let proof = leaves(count);
        let [a, b] = numbers;
        let hash = empty_root();
        prop_assert!(verify_inclusion(&hash, a, b, &proof, &hash).is_err());
        prop_assert!(a == b || verify_consistency(a, b, &proof, &hash, &hash).is_err());
    }
}

/// A hash of a vector; the vectors also hold texts where a hash does not matter.
fn vector_hash(value: &Value) -> Option<Hash> {
    let text = value.as_str().expect("a string");
    let mut bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .expect("base64");
    if bytes.starts_with(b"don't care") {
        bytes.resize(32, 0);
    }
    Hash::try_from(bytes.as_slice()).ok()
}

fn holds(vector: &Value) -> bool {
    let number = |name: &str| vector[name].as_u64().expect("a number");
    let hash = |name: &str| vector_hash(&vector[name]);
    let proof = vector["proof"].as_array().cloned().unwrap_or_default();
    let proof: Option<Vec<Hash>> = proof.iter().map(vector_hash).collect();
    let Some(proof) = proof else { return false };
    if vector["leafIdx"].is_null() {
        let (Some(old), Some(new)) = (hash("root1"), hash("root2")) else {
            return false;
        };
        verify_consistency(number("size1"), number("size2"), &proof, &old, &new).is_ok()
    } else {
        let (Some(leaf), Some(root)) = (hash("leafHash"), hash("root")) else {
            return false;
        };
        let (index, size) = (number("leafIdx"), number("treeSize"));
        verify_inclusion(&leaf, index, size, &proof, &root).is_ok()
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn published_vectors() {
    let what = "the published Merkle proof vectors";
    let dir = shared_dir().map(|dir| dir.join("vectors/merkle"));
    let Some(dir) = dir.filter(|dir| dir.is_dir()) else {
        return skip(what, "the directory of optional test data is not there");
    };
    let files = files_below(&dir);
    assert!(files.len() > 100, "only {} vectors", files.len());
    for file in files {
        let text = fs::read(&file).expect("readable");
        let vector: Value = serde_json::from_slice(&text).expect("JSON");
        let refused = vector["wantErr"].as_bool().expect("a verdict");
        assert_eq!(holds(&vector), !refused, "{}", file.display());
    }
}
