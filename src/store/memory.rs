//! stub
/// stub
#[derive(Debug)]
pub struct MemoryStore;
