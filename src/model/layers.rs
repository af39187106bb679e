pub struct RunLayers;
