pub struct Context;
pub struct ContextConfig;
