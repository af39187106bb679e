use crate::{Gguf, Result};
pub struct Tokenizer;
#[derive(Clone, Copy)]
pub struct EncodeOptions { pub add_special: bool, pub parse_special: bool }
impl Tokenizer { pub fn from_gguf(_g: &Gguf) -> Result<Self> { todo!() } pub fn is_eog(&self, _t: u32) -> bool { false } pub fn warnings(&self) -> &[String] { &[] } pub fn encode(&self, _t: &str, _o: EncodeOptions) -> Vec<u32> { todo!() }
 pub fn decode(&self, _t: &[u32]) -> Vec<u8> { todo!() } pub fn bos(&self) -> Option<u32> { None } pub fn adds_bos(&self) -> bool { true } }
pub struct StreamDecoder<'a>(&'a Tokenizer);
impl<'a> StreamDecoder<'a> { pub fn new(t: &'a Tokenizer) -> Self { StreamDecoder(t) } pub fn push(&mut self, _i: u32) -> String { todo!() } pub fn finish(&mut self) -> String { todo!() } }
pub mod chat { pub struct Message; impl Message { pub fn new(_r: &str, _c: &str) -> Self { Message } } pub struct ChatTemplate; impl ChatTemplate { pub fn from_gguf(_g: &crate::Gguf) -> crate::Result<Self> { todo!() } pub fn render(&self, _m: &[Message], _a: bool) -> crate::Result<String> { todo!() } } }
