//! Whatever is done in whatever order, by several writers: the store is sound, and it has exactly
//! what was acknowledged.

use std::collections::BTreeMap;

use abp_store::Store;
use proptest::prelude::*;
use uuid::Uuid;

use crate::lab::{assert_sound, count_events, event, finish, new_run, open};

/// One thing that a writer does to a run.
#[derive(Debug, Clone, Copy)]
enum Act {
    Accept,
    Append,
    /// An event that is not the next one.
    Skip,
    Finish,
    Adopt,
    Rotate,
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Accept),
        8 => Just(Act::Append),
        1 => Just(Act::Skip),
        4 => Just(Act::Finish),
        1 => Just(Act::Adopt),
        1 => Just(Act::Rotate),
        1 => Just(Act::Reopen),
    ]
}

/// What a run should look like.
#[derive(Debug, Default)]
struct Model {
    owner: Option<usize>,
    events: u64,
    over: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_order_of_acts_leaves_a_sound_store(
        acts in proptest::collection::vec((0..2_usize, 0..4_usize, act()), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(play(acts));
    }
}

async fn play(acts: Vec<(usize, usize, Act)>) {
    let dir = crate::lab::directory();
    let ids: Vec<Uuid> = (0..4).map(|_| Uuid::now_v7()).collect();
    let mut stores: Vec<Store> = vec![open(dir.path()).await, open(dir.path()).await];
    let mut runs: BTreeMap<usize, Model> = BTreeMap::new();
    for (writer, which, act) in acts {
        let store = &stores[writer];
        let (id, model) = (ids[which], runs.entry(which).or_default());
        let own = model.owner == Some(writer) && !model.over;
        let known = model.owner.is_some() || model.over || model.events > 0;
        match act {
            Act::Accept => {
                let accepted = store.accept(new_run(id)).await.is_ok();
                assert_eq!(accepted, !known);
                if accepted {
                    model.owner = Some(writer);
                }
            }
            Act::Append | Act::Skip => {
                let skip = u64::from(matches!(act, Act::Skip));
                let seq = model.events + skip;
                let ack = store.append_event(id, seq, event(seq)).await;
                let appended = ack.expect("queued").await.is_ok();
                assert_eq!(appended, own && skip == 0);
                model.events += u64::from(appended);
            }
            Act::Finish => {
                let ended = finish(store, id).await.is_ok();
                assert_eq!(ended, own);
                model.over |= ended;
            }
            // Both writers live, so there is nothing to take over from them.
            Act::Adopt => {
                let orphan = known && !model.over && model.owner == Some(usize::MAX);
                assert_eq!(
                    store.take_over(id).await.ok().map(|taken| taken.is_some()),
                    known.then_some(orphan)
                );
                if orphan {
                    model.owner = Some(writer);
                }
            }
            Act::Rotate => drop(store.rotate_key().await.expect("rotated")),
            Act::Reopen => {
                let fresh = open(dir.path()).await;
                std::mem::replace(&mut stores[writer], fresh).close().await;
                for model in runs
                    .values_mut()
                    .filter(|model| model.owner == Some(writer))
                {
                    model.owner = Some(usize::MAX);
                }
            }
        }
    }
    let store = &stores[0];
    assert_sound(store).await;
    for (which, model) in runs {
        assert_eq!(count_events(store, ids[which]).await, model.events);
        let receipt = store.receipt(ids[which]).await.expect("readable");
        assert_eq!(receipt.is_some(), model.over);
    }
}
