"""`barnabas pipeline`: run and watch Spark pipelines."""
