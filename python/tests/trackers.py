"""For tests: packages of trackers without their servers."""
import types


class FakeWandb:
    """A wandb whose runs outlive their processes, by id."""

    def __init__(self):
        self.runs, self.asked = {}, []
        self.module = types.SimpleNamespace(init=self.init)

    def init(self, **words):
        self.asked.append(words)
        rows = self.runs.setdefault(words["id"], {})
        ended = []
        return types.SimpleNamespace(step=max(rows, default=-1) + 1, log=lambda values, step: rows.__setitem__(step, values), finish=lambda exit_code: ended.append(exit_code))


class FakeMlflow:
    """An MlflowClient with one experiment."""

    def __init__(self):
        self.runs = {}

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "1"

    def search_runs(self, experiments, filter_string):
        wanted = filter_string.split("'")[1]
        return [types.SimpleNamespace(info=types.SimpleNamespace(run_id=key), data=types.SimpleNamespace(tags=run["tags"]))
                for key, run in self.runs.items() if run["tags"]["headrace.run"] == wanted]

    def create_run(self, experiment, tags):
        self.runs["x"] = {"tags": dict(tags), "metrics": {}, "params": {}}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="x"))

    def update_run(self, run, status):
        self.runs[run]["status"] = status

    def log_param(self, run, key, value):
        self.runs[run]["params"][key] = value

    def log_metric(self, run, key, value, step):
        self.runs[run]["metrics"].setdefault(key, {})[step] = value

    def set_tag(self, run, key, value):
        self.runs[run]["tags"][key] = str(value)

    def set_terminated(self, run, status):
        self.runs[run]["status"] = status
