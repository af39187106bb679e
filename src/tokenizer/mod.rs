pub struct Tokenizer;
