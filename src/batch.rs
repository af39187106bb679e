pub struct Batch;
