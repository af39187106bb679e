// Stores attention's result.
fn keep(i: u32, x: f32) {}

fn prepare_head(first_block: u32, thread: u32) {}
