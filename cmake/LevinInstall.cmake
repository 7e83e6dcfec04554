# Filled in below: install(TARGETS …) and the package config.
