// The classes of the part levin_tracking, for run files. core/process/parts.cpp lists the same names.
#include "levin/core/options/registry.h"
#include "levin/core/process/parts.h"
#include "levin/loggers/mlflow_logger.h"
#include "levin/loggers/prometheus_logger.h"
#include "levin/loggers/sqlite_logger.h"

namespace levin {

LEVIN_PART(tracking) {
  auto& loggers = Registry<Logger>::instance();
  loggers.add<MLFlowLogger>("MLFlowLogger", "a run on an MLflow server; training never waits for it");
  loggers.add<PrometheusLogger>("PrometheusLogger", "a file for the textfile collector of Prometheus' node_exporter");
  loggers.add<SQLiteLogger>("SQLiteLogger", "all runs in one SQLite file, readable while they run");
}

}  // namespace levin
