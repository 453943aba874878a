"""Programs of Python run against a server, unchanged: locks, rate limits, queues, caches, sessions.

    python3 programs.py PORT [PROGRAM...]

Prints a line per program: its name, the version of its package, and ok or the error. Programs whose
package is missing are skipped. The exit status is 1 if one failed.
"""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback

PORT = int(sys.argv[1])
URL = f"redis://127.0.0.1:{PORT}"


def client(**options):
    import redis

    return redis.Redis(port=PORT, decode_responses=True, **options)


def until(condition, what, seconds=30):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def worker(module, code, *command):
    """A process that runs a command beside a module with the code."""
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, module + ".py"), "w") as file:
        file.write(code)
    environment = dict(os.environ, PYTHONPATH=folder)
    log = open(os.path.join(folder, "log"), "w+")
    process = subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, stdout=log, stderr=log
    )
    sys.path.insert(0, folder)
    return process, log


def end(process):
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def redis_lock():
    one, other = client(), client()
    lock = one.lock("lock:a", timeout=5)
    assert lock.acquire(blocking=False)
    rival = other.lock("lock:a", timeout=5)
    assert not rival.acquire(blocking=False)
    assert lock.extend(10) and lock.reacquire() and lock.owned()
    thread = threading.Timer(0.2, lambda: one.delete("lock:a"))
    thread.start()
    assert rival.acquire(blocking_timeout=5)
    rival.release()
    assert not rival.locked()


def flask_limiter():
    import flask
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    for strategy in ["fixed-window", "moving-window", "sliding-window-counter"]:
        app = flask.Flask(__name__)
        limiter = Limiter(
            get_remote_address, app=app, storage_uri=URL, strategy=strategy, key_prefix=strategy
        )

        @app.route("/")
        @limiter.limit("3 per minute")
        def index():
            return "ok"

        codes = [app.test_client().get("/").status_code for _ in range(5)]
        assert codes == [200, 200, 200, 429, 429], (strategy, codes)
        limiter.reset()


TASKS_CELERY = f"""
from celery import Celery
app = Celery("celery_tasks", broker="{URL}/1", backend="{URL}/2")
@app.task
def add(a, b):
    return a + b
@app.task
def total(numbers):
    return sum(numbers)
@app.task(bind=True, max_retries=3)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries
"""


def celery():
    process, log = worker(
        "celery_tasks", TASKS_CELERY, "-m", "celery", "-A", "celery_tasks", "worker", "--pool", "threads", "-c", "2"
    )
    try:
        import celery_tasks as tasks
        from celery import chain, chord, group

        assert tasks.add.delay(2, 3).get(timeout=60) == 5
        assert chain(tasks.add.s(1, 2), tasks.add.s(4))().get(timeout=30) == 7
        assert group(tasks.add.s(i, i) for i in range(10))().get(timeout=30) == list(range(0, 20, 2))
        assert chord([tasks.add.s(i, 1) for i in range(10)], tasks.total.s())().get(timeout=60) == 55
        assert tasks.flaky.delay().get(timeout=30) == 2
        late = tasks.add.apply_async((1, 1), countdown=1)
        assert late.get(timeout=30) == 2
        # The worker answers over pub/sub.
        assert tasks.app.control.inspect(timeout=5).ping()
    except BaseException:
        log.seek(0)
        print(log.read()[-3000:])
        raise
    finally:
        end(process)


TASKS_RQ = """
def add(a, b):
    return a + b
def fail():
    raise ValueError("as asked")
"""


def rq():
    import redis
    from rq import Queue, Retry
    from rq.job import JobStatus

    process, log = worker("rq_tasks", TASKS_RQ, "-m", "rq.cli", "worker", "--with-scheduler", "-u", URL)
    try:
        import rq_tasks as tasks
        from datetime import timedelta

        queue = Queue(connection=redis.Redis(port=PORT))
        jobs = [queue.enqueue(tasks.add, i, 1) for i in range(5)]
        after = queue.enqueue(tasks.add, 5, 5, depends_on=jobs)
        failed = queue.enqueue(tasks.fail, retry=Retry(max=1))
        late = queue.enqueue_in(timedelta(seconds=1), tasks.add, 1, 2)
        until(lambda: after.get_status() == JobStatus.FINISHED, "dependent job", 60)
        assert [job.return_value() for job in jobs] == [1, 2, 3, 4, 5]
        until(lambda: failed.get_status() == JobStatus.FAILED, "failed job")
        assert failed.id in queue.failed_job_registry.get_job_ids()
        until(lambda: late.get_status() == JobStatus.FINISHED, "scheduled job", 90)
    except BaseException:
        log.seek(0)
        print(log.read()[-3000:])
        raise
    finally:
        end(process)


def huey():
    from huey import PriorityRedisHuey, RedisExpireHuey, RedisHuey

    for kind in [RedisHuey, PriorityRedisHuey, RedisExpireHuey]:
        queue = kind(kind.__name__, url=URL)

        @queue.task(retries=2)
        def add(a, b):
            return a + b

        consumer = queue.create_consumer(workers=2, periodic=False, initial_delay=0.05)
        consumer.start()
        try:
            results = [add(i, i) for i in range(10)]
            assert [result.get(blocking=True, timeout=20) for result in results] == [
                2 * i for i in range(10)
            ]
            late = add.schedule((1, 2), delay=1)
            assert late.get(blocking=True, timeout=20) == 3
            with queue.lock_task("one"):
                assert queue.is_locked("one")
        finally:
            consumer.stop()


def dramatiq():
    import dramatiq as library
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
    from dramatiq.rate_limits.backends import RedisBackend
    from dramatiq.results import Results
    from dramatiq.results.backends import RedisBackend as ResultBackend

    broker = RedisBroker(url=URL)
    broker.add_middleware(Results(backend=ResultBackend(url=URL)))
    library.set_broker(broker)

    @library.actor(store_results=True)
    def add(a, b):
        return a + b

    workers = library.Worker(broker, worker_timeout=100, worker_threads=2)
    workers.start()
    try:
        messages = [add.send(i, i) for i in range(10)]
        assert [m.get_result(block=True, timeout=20_000) for m in messages] == [
            2 * i for i in range(10)
        ]
        late = add.send_with_options(args=(1, 2), delay=500)
        assert late.get_result(block=True, timeout=20_000) == 3
    finally:
        workers.stop()
    backend = RedisBackend(url=URL)
    with ConcurrentRateLimiter(backend, "mutex", limit=1).acquire(raise_on_failure=False) as got:
        assert got
    window = WindowRateLimiter(backend, "window", limit=2, window=10)
    took = []
    for _ in range(3):
        with window.acquire(raise_on_failure=False) as got:
            took.append(got)
    assert took == [True, True, False], took


def configure_django():
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            INSTALLED_APPS=["django.contrib.sessions"],
            SESSION_ENGINE="django.contrib.sessions.backends.cache",
            CACHES={
                "default": {
                    "BACKEND": "django.core.cache.backends.redis.RedisCache",
                    "LOCATION": f"{URL}/3",
                },
                "package": {
                    "BACKEND": "django_redis.cache.RedisCache",
                    "LOCATION": f"{URL}/4",
                },
            },
        )
        import django

        django.setup()


def use_cache(cache):
    cache.set("a", {"b": [1, 2]}, 60)
    assert cache.get("a") == {"b": [1, 2]}
    assert not cache.add("a", 1) and cache.add("n", 5, 60)
    assert cache.incr("n") == 6 and cache.decr("n", 2) == 4
    cache.set_many({"x": 1, "y": 2}, 60)
    assert cache.get_many(["x", "y", "z"]) == {"x": 1, "y": 2}
    assert cache.touch("x", 1) and cache.get_or_set("w", 9) == 9
    cache.delete_many(["x", "y"])
    assert cache.get("x") is None
    cache.clear()
    assert cache.get("a") is None


def django_cache():
    configure_django()
    from django.core.cache import caches

    use_cache(caches["default"])


def django_sessions():
    configure_django()
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["user"] = 7
    session.set_expiry(60)
    session.save()
    again = SessionStore(session.session_key)
    assert again["user"] == 7
    again.cycle_key()
    assert not SessionStore().exists(session.session_key)
    again.flush()


def django_redis():
    configure_django()
    from django.core.cache import caches

    cache = caches["package"]
    use_cache(cache)
    cache.set("k:1", 1, timeout=60)
    cache.set("k:2", 2, timeout=None)
    assert 0 < cache.ttl("k:1") <= 60 and cache.ttl("k:2") is None
    assert sorted(cache.keys("k:*")) == sorted(cache.iter_keys("k:*")) == ["k:1", "k:2"]
    assert cache.persist("k:1") and cache.expire("k:1", 5) and cache.pexpire("k:1", 5000)
    with cache.lock("lock", timeout=5):
        assert cache.get("k:1") == 1
    assert cache.set("nx", 1, nx=True) and not cache.set("nx", 2, nx=True)
    assert cache.delete_pattern("k:*") == 2


def redis_py():
    """The client itself: pipelines, pub/sub, streams, RESP2 and RESP3."""
    for protocol in [2, 3]:
        server = client(protocol=protocol)
        with server.pipeline() as pipe:
            pipe.hset("h", mapping={"a": 1, "b": 2}).zadd("z", {"m": 1.5}).incr("n")
            pipe.execute()
        assert server.hgetall("h") == {"a": "1", "b": "2"}
        with server.pubsub() as pubsub:
            pubsub.subscribe("news")
            until(lambda: server.publish("news", "hello"), "subscription")
            messages = [pubsub.get_message(timeout=5) for _ in range(2)]
            assert any(m and m["data"] == "hello" for m in messages), messages
        server.xgroup_create("s", "g", mkstream=True)
        server.xadd("s", {"f": "v"})
        assert server.xreadgroup("g", "c", {"s": ">"})
        server.flushdb()


PROGRAMS = {
    "redis-py": ("redis", redis_py),
    "redis-py Lock": ("redis", redis_lock),
    "Flask-Limiter": ("flask-limiter", flask_limiter),
    "Celery": ("celery", celery),
    "RQ": ("rq", rq),
    "huey": ("huey", huey),
    "dramatiq": ("dramatiq", dramatiq),
    "Django cache": ("django", django_cache),
    "Django sessions": ("django", django_sessions),
    "django-redis": ("django-redis", django_redis),
}


def main():
    has_failed = False
    for name, (package, program) in PROGRAMS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: skipped, {package} is not installed", flush=True)
            continue
        try:
            program()
            print(f"{name} {version}: ok", flush=True)
        except Exception:
            has_failed = True
            print(f"{name} {version}: FAILED", flush=True)
            traceback.print_exc()
    # Threads of the programs may still run.
    sys.stdout.flush()
    os._exit(has_failed)


main()
