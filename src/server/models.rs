//! The models that a server has.

use std::{ops::Deref, sync::Arc};

use super::{served::Served, wire::ApiError};

/// The models that requests may name.
pub struct Models {
    only: Arc<Served>,
}

/// A model in use.
#[derive(Clone)]
pub struct Lease(Arc<Served>);

impl Models {
    /// One model, whatever requests call it.
    pub fn one(served: Served) -> Self {
        Models { only: Arc::new(served) }
    }

    /// The model of a request.
    pub(super) async fn lease(&self, _name: Option<&str>) -> Result<Lease, ApiError> {
        Ok(Lease(self.only.clone()))
    }
}

impl Deref for Lease {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}
