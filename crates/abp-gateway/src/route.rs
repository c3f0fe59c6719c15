//! Which upstreams can serve a request, and in which order they are tried.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use abp_backend_core::Upstream;
use abp_core::{CapabilityManifest, ModelPrice, PriceTable};
use abp_dialect::{Dialect, TargetProfile, WireFamily};
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;

use crate::health::Health;
use crate::lock::lock;
use crate::pool::Pool;

/// How many models are remembered.
const MAX_MODELS: usize = 256;

/// What the operator says about an upstream.
#[derive(Debug, Clone)]
pub struct UpstreamRules {
    /// The models it serves: names or patterns.
    pub models: Vec<String>,
    /// The vendor's names for models that callers know under others.
    pub aliases: BTreeMap<String, String>,
    /// How much of the traffic it should get, relative to others that serve as well.
    pub weight: u32,
    /// Upstreams to try after it.
    pub fallback: Vec<String>,
    /// The parts of its API that are passed on as they are; `*` for all.
    pub pass_through: Vec<String>,
    /// What its models cost.
    pub prices: Option<PriceTable>,
    /// How many requests it gets at once.
    pub max_concurrent: usize,
}

impl Default for UpstreamRules {
    fn default() -> Self {
        Self {
            models: vec!["*".to_owned()],
            aliases: BTreeMap::new(),
            weight: 1,
            fallback: Vec::new(),
            pass_through: Vec::new(),
            prices: None,
            max_concurrent: 256,
        }
    }
}

/// An upstream with its rules and its health.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) rules: UpstreamRules,
    models: GlobList,
    pub(crate) slots: Arc<Pool>,
    pub(crate) health: Health,
    manifests: Mutex<HashMap<String, (Dialect, Arc<CapabilityManifest>)>>,
}

impl Member {
    pub(crate) fn new(upstream: Arc<dyn Upstream>, rules: UpstreamRules) -> Result<Self, AbpError> {
        let name = &upstream.descriptor().name;
        let models = GlobList::new(&rules.models).map_err(|error| {
            AbpError::new(
                ErrorCode::ConfigInvalid,
                format!("upstream {name}: {error}"),
            )
        })?;
        Ok(Self {
            models,
            slots: Pool::new(rules.max_concurrent as u64),
            health: Health::default(),
            manifests: Mutex::default(),
            upstream,
            rules,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.upstream.descriptor().name
    }

    /// What a model can do, as far as its name tells.
    pub(crate) fn manifest(&self, dialect: Dialect, model: &str) -> Arc<CapabilityManifest> {
        let mut known = lock(&self.manifests);
        if let Some((_, manifest)) = known.get(model).filter(|(of, _)| *of == dialect) {
            return Arc::clone(manifest);
        }
        let manifest = Arc::new(abp_translate::manifest(dialect, Some(model)));
        // Callers choose the names where an upstream takes any.
        if known.len() >= MAX_MODELS {
            known.clear();
        }
        known.insert(model.to_owned(), (dialect, Arc::clone(&manifest)));
        manifest
    }

    /// What a model costs there, where that is known.
    pub(crate) fn price(&self, model: &str) -> Option<ModelPrice> {
        let prices = self.rules.prices.as_ref()?;
        prices.get(Some(model)).copied()
    }

    /// Whether a part of its API is passed on to it.
    pub(crate) fn passes(&self, dialect: Dialect, part: &str) -> bool {
        let speaks = self.upstream.descriptor().dialects.contains(&dialect);
        let mut listed = self.rules.pass_through.iter();
        speaks && listed.any(|listed| listed == "*" || listed == part)
    }

    /// The vendor's name for a model, where the upstream serves it.
    pub(crate) fn serves<'m>(&'m self, model: &'m str) -> Option<&'m str> {
        match self.rules.aliases.get(model) {
            Some(name) => Some(name),
            None => self.models.is_match(model).then_some(model),
        }
    }
}

/// An upstream for a request.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) member: Arc<Member>,
    /// The dialect it is asked in.
    pub(crate) dialect: Dialect,
    /// The vendor's name for the model.
    pub(crate) model: String,
    /// What the translation has to know; names the model where it is not the caller's.
    pub(crate) profile: TargetProfile,
}

impl Choice {
    /// Whether bytes pass untouched.
    pub(crate) fn is_native(&self, asked: Dialect) -> bool {
        self.dialect == asked && self.profile.keeps_requests()
    }

    /// The same with a limit for answers, where the request names none.
    pub(crate) fn limited(&self, max_output: u64) -> Self {
        Self {
            member: Arc::clone(&self.member),
            dialect: self.dialect,
            model: self.model.clone(),
            profile: TargetProfile {
                max_output: Some(max_output),
                ..self.profile.clone()
            },
        }
    }

    /// The same, telling what a stream uses where its vendor tells that only when asked.
    pub(crate) fn counted(self: &Arc<Self>) -> Arc<Self> {
        if self.dialect.family() != WireFamily::Chat {
            return Arc::clone(self);
        }
        Arc::new(Self {
            member: Arc::clone(&self.member),
            dialect: self.dialect,
            model: self.model.clone(),
            profile: TargetProfile {
                stream_usage: true,
                ..self.profile.clone()
            },
        })
    }

    /// What the model costs there, where that is known.
    pub(crate) fn price(&self) -> Option<ModelPrice> {
        self.member.price(&self.model)
    }

    /// The same for a request that names the vendor's model already.
    pub(crate) fn native(&self) -> Self {
        Self {
            member: Arc::clone(&self.member),
            dialect: self.dialect,
            model: self.model.clone(),
            profile: TargetProfile {
                model: None,
                ..self.profile.clone()
            },
        }
    }
}

/// Upstreams for a request, in the order in which they are to be tried.
pub(crate) type Choices = Arc<[Arc<Choice>]>;

/// The upstreams, and which of them serve which model.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) members: Vec<Arc<Member>>,
    /// Who serves a model, in no order yet.
    known: RwLock<HashMap<String, Vec<(Dialect, Choices)>>>,
}

impl Routes {
    pub(crate) fn new(members: Vec<Arc<Member>>) -> Self {
        Self {
            members,
            known: RwLock::default(),
        }
    }

    /// The upstreams that serve a model, in the order in which they are to be tried: those that speak
    /// the caller's dialect first, because nothing is lost there; among equals by weight, and the same
    /// one for the same `seed`; after each one its fallbacks.
    pub(crate) fn choices(&self, asked: Dialect, model: &str, seed: u64) -> Choices {
        let serving = self.serving(asked, model);
        match serving.as_ref() {
            [only] if only.member.rules.fallback.is_empty() => serving,
            _ => self.in_order(&serving, asked, model, seed),
        }
    }

    fn serving(&self, asked: Dialect, model: &str) -> Choices {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut of_model = known.get(model).into_iter().flatten();
        if let Some((_, serving)) = of_model.find(|(dialect, _)| *dialect == asked) {
            return Arc::clone(serving);
        }
        drop(known);
        let serving = self.members.iter();
        let serving: Choices = serving
            .filter_map(|member| choice(member, asked, model))
            .collect();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Callers choose the names where an upstream takes any.
        if known.len() >= MAX_MODELS {
            known.clear();
        }
        let of_model = known.entry(model.to_owned()).or_default();
        of_model.push((asked, Arc::clone(&serving)));
        serving
    }

    fn in_order(&self, serving: &Choices, asked: Dialect, model: &str, seed: u64) -> Choices {
        let mut choices = serving.to_vec();
        choices.sort_by(|a, b| {
            let key = |choice: &Choice| (!choice.is_native(asked), choice.dialect != asked);
            let by_weight = || draw(b, seed).total_cmp(&draw(a, seed));
            key(a).cmp(&key(b)).then_with(by_weight)
        });
        let fallbacks: Vec<_> = choices
            .iter()
            .flat_map(|choice| &choice.member.rules.fallback)
            .filter_map(|name| self.members.iter().find(|member| member.name() == name))
            // A fallback that does not list the model is the operator's word that it will do.
            .filter_map(|member| {
                choice(member, asked, model).or_else(|| named(member, asked, model, model))
            })
            .collect();
        choices.extend(fallbacks);
        let mut seen: Vec<Arc<Member>> = Vec::new();
        choices.retain(|choice| {
            let known = seen
                .iter()
                .any(|member| Arc::ptr_eq(member, &choice.member));
            seen.push(Arc::clone(&choice.member));
            !known
        });
        choices.into()
    }
}

fn choice(member: &Arc<Member>, asked: Dialect, model: &str) -> Option<Arc<Choice>> {
    named(member, asked, model, member.serves(model)?)
}

fn named(member: &Arc<Member>, asked: Dialect, model: &str, name: &str) -> Option<Arc<Choice>> {
    let descriptor = member.upstream.descriptor();
    let dialect = descriptor.dialect_for(asked)?;
    // Gemini names the model in the address, so a request of it has none for another vendor.
    let unnamed = asked.family() == WireFamily::GenerateContent && dialect != asked;
    let profile = TargetProfile {
        model: (name != model || unnamed).then(|| name.to_owned()),
        wire_version: descriptor.wire_version.clone(),
        ..TargetProfile::default()
    };
    Some(Arc::new(Choice {
        dialect,
        model: name.to_owned(),
        profile,
        member: Arc::clone(member),
    }))
}

/// A number that is largest for each member in proportion to its weight (weighted rendezvous hashing):
/// when a member leaves, only its own conversations move.
fn draw(choice: &Choice, seed: u64) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, choice.member.name()).hash(&mut hasher);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a draw need not be exact beyond 2^53"
    )]
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    let weight = f64::from(choice.member.rules.weight);
    if weight == 0.0 {
        return f64::NEG_INFINITY;
    }
    -weight / uniform.ln()
}

/// What a conversation is known by, as a number; of the run itself where it says nothing.
pub(crate) fn seed(session: Option<&str>, run: uuid::Uuid) -> u64 {
    let mut hasher = DefaultHasher::new();
    match session {
        Some(session) => session.hash(&mut hasher),
        None => run.hash(&mut hasher),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use abp_backend_core::{BoxFuture, ModelCall, ModelReply, UpstreamDescriptor, UpstreamError};

    use super::*;

    #[derive(Debug)]
    struct Named(UpstreamDescriptor);

    impl Upstream for Named {
        fn descriptor(&self) -> &UpstreamDescriptor {
            &self.0
        }

        fn send(&self, _: ModelCall) -> BoxFuture<'_, Result<ModelReply, UpstreamError>> {
            Box::pin(std::future::pending())
        }
    }

    fn member(name: &str, dialect: Dialect, rules: UpstreamRules) -> Arc<Member> {
        let descriptor = UpstreamDescriptor {
            name: name.to_owned(),
            dialects: vec![dialect],
            wire_version: None,
            address: None,
            is_demonstration: false,
        };
        Arc::new(Member::new(Arc::new(Named(descriptor)), rules).expect("a member"))
    }

    fn names(members: &[Arc<Member>], model: &str, seed: u64) -> Vec<String> {
        Routes::new(members.to_vec())
            .choices(Dialect::OpenAi, model, seed)
            .iter()
            .map(|choice| format!("{}:{}", choice.member.name(), choice.model))
            .collect()
    }

    #[test]
    fn own_dialect_first_then_others_then_fallbacks_each_once() {
        let rules = |models: &[&str], fallback: &[&str]| UpstreamRules {
            models: models.iter().map(ToString::to_string).collect(),
            fallback: fallback.iter().map(ToString::to_string).collect(),
            ..UpstreamRules::default()
        };
        let mut aliased = rules(&["other"], &[]);
        aliased.aliases = [("gpt-4o".to_owned(), "real-name".to_owned())].into();
        let members = [
            member("claude", Dialect::Claude, rules(&["*"], &[])),
            member("alias", Dialect::OpenAi, aliased),
            member(
                "openai",
                Dialect::OpenAi,
                rules(&["gpt-*"], &["last", "claude"]),
            ),
            member("last", Dialect::Gemini, rules(&["gemini-*"], &[])),
        ];
        let expected = [
            "openai:gpt-4o",
            "alias:real-name",
            "claude:gpt-4o",
            "last:gpt-4o",
        ];
        assert_eq!(names(&members, "gpt-4o", 1), expected);
        let mut equals = names(&members, "gemini-x", 1);
        equals.sort();
        assert_eq!(equals, ["claude:gemini-x", "last:gemini-x"]);
    }

    #[test]
    fn weights_share_the_traffic_and_a_session_stays() {
        let weighted = |weight| UpstreamRules {
            weight,
            ..UpstreamRules::default()
        };
        let members = [
            member("three", Dialect::OpenAi, weighted(3)),
            member("one", Dialect::OpenAi, weighted(1)),
            member("none", Dialect::OpenAi, weighted(0)),
        ];
        let first = |seed| names(&members, "m", seed).remove(0);
        let share = (0..4000).filter(|&seed| first(seed) == "three:m").count();
        assert!((2850..3150).contains(&share), "{share} of 4000");
        assert!((0..1000).all(|seed| first(seed) != "none:m"));
        assert_eq!(first(7), first(7));
        let fewer = &members[..1];
        let moved = (0..1000).filter(|&seed| {
            first(seed) == "three:m"
                && names(fewer, "m", seed).first() != Some(&"three:m".to_owned())
        });
        assert_eq!(moved.count(), 0, "who was there stays");
    }
}
