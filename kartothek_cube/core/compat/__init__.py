"""kartothek's classes as thin façades over snapshots."""
