//! stub
/// stub
#[derive(Debug)]
pub struct RedisStore;
