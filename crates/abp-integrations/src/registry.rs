//! Backends by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use abp_backend_core::{Backend, BackendDescriptor};
use abp_backend_mock::MockBackend;
use abp_core::WorkOrder;
use abp_plan::Candidate;

/// Backends by name.
#[derive(Debug, Clone, Default)]
pub struct BackendRegistry {
    backends: BTreeMap<String, Arc<dyn Backend>>,
}

impl BackendRegistry {
    /// A registry without backends.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry with the embedded backend.
    #[must_use]
    pub fn with_embedded() -> Self {
        let mut registry = Self::new();
        registry.register(Arc::new(MockBackend::new()));
        registry
    }

    /// Adds a backend under its own name, replacing one of the same name.
    pub fn register(&mut self, backend: Arc<dyn Backend>) {
        self.backends
            .insert(backend.descriptor().name.clone(), backend);
    }

    /// The backend of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Backend>> {
        self.backends.get(name)
    }

    /// Every backend, in the order of their names.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.backends.values()
    }

    /// What is known about every backend, in the order of their names.
    pub fn descriptors(&self) -> impl Iterator<Item = &BackendDescriptor> {
        self.backends.values().map(|backend| backend.descriptor())
    }

    /// Every backend as a candidate for an order.
    #[must_use]
    pub fn candidates(&self, order: &WorkOrder) -> Vec<Candidate> {
        let model = order.config.model.as_deref();
        let candidate = |backend: &Arc<dyn Backend>| {
            let descriptor = backend.descriptor();
            Candidate {
                backend: descriptor.name.clone(),
                manifest: backend.manifest(model),
                holders: descriptor.expected_holders(&order.policy, order.workspace.mode),
                priority: descriptor.priority,
                is_demonstration: descriptor.is_demonstration,
                model: descriptor.model.clone(),
            }
        };
        self.backends().map(candidate).collect()
    }
}
