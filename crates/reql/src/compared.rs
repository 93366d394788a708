//! A geometry that is compared with many others.

use std::sync::OnceLock;

use tessera_geo::Geometry;

use crate::error::Result;
use crate::value::Value;

/// A geometry value whose shape is read once.
#[derive(Debug)]
pub struct Compared {
    pub geojson: Value,
    shape: OnceLock<Geometry>,
}

impl Compared {
    pub fn new(geojson: Value) -> Self {
        Self { geojson, shape: OnceLock::new() }
    }

    /// The shape, which `read` reads if nobody has.
    ///
    /// # Errors
    /// What `read` complains about.
    pub fn shape(&self, read: impl FnOnce(&Value) -> Result<Geometry>) -> Result<&Geometry> {
        if let Some(shape) = self.shape.get() {
            return Ok(shape);
        }
        let shape = read(&self.geojson)?;
        Ok(self.shape.get_or_init(|| shape))
    }
}
