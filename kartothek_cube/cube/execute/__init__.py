"""From a plan to rows: partitions loaded, joined, sorted, one by one or in batches."""
