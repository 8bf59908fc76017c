"""Writing data frames of Spark: rows distributed, checked and staged in tasks, committed once by the driver."""
