"""LayerTrace -> exact parts. Equations only."""
