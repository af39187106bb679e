#[derive(Clone, Debug, PartialEq)]
pub struct RunLayers { n: usize }
pub struct Step { pub layer: usize, pub repetition: usize, pub attn: bool, pub mlp: bool }
impl RunLayers {
    pub fn all(n: usize) -> Self { RunLayers { n } }
    pub fn n_layer(&self) -> usize { self.n }
    pub fn skip_attn(self, _l: usize) -> Self { self }
    pub fn skip_mlp(self, _l: usize) -> Self { self }
    pub fn extra_repetitions(&self) -> usize { 0 }
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ { (0..self.n).map(|layer| Step { layer, repetition: 0, attn: true, mlp: true }) }
}
impl std::fmt::Display for RunLayers { fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result { write!(f, "") } }
pub fn parse_layers(_flag: &str, _t: &str, _n: usize) -> crate::Result<Vec<usize>> { todo!() }
