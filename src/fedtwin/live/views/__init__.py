"""What a run shows to whoever watches: the twin's bucket, metrics, reasons counted."""
