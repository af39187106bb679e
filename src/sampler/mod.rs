pub struct Sampler;
#[derive(Clone, Default)]
pub struct SamplerConfig { pub temp: f32 }
impl Sampler { pub fn new(_c: SamplerConfig) -> Self { Sampler } pub fn sample(&mut self, _l: &[f32]) -> u32 { 0 } pub fn accept(&mut self, _t: u32) {} pub fn seed(&self) -> u64 { 0 } }
pub fn top_logprobs(_l: &[f32], _k: usize) -> Vec<(u32, f32)> { todo!() }
