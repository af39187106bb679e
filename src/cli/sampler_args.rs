#[derive(clap::Args, Debug)]
pub struct SamplerArgs {}
impl SamplerArgs { pub fn config(&self) -> crate::Result<crate::sampler::SamplerConfig> { todo!() } }
