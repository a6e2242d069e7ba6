"""Loaded by schemathesis. Gives requests that are right by their schema what a schema cannot say (an id that exists, a
time that lies ahead, an address that may be called), and writes down each answer.

Requests that are wrong on purpose go out as they were made.
"""

import atexit
import base64
import collections
import json
import os
import random
import threading
import time

import schemathesis
import urllib3.connection
import urllib3.connectionpool
from schemathesis.generation import GenerationMode

from .world import World

GIVEN = json.loads(os.environ["RAILYARD_CONFORMANCE"])
WORLD = World(GIVEN["api"], GIVEN["token"], GIVEN["receiver"])
CHANCE = random.Random(GIVEN["seed"])
ANSWERS = collections.Counter()
LOCK = threading.Lock()

LIST_MAX = 100
MEDIA_TYPES = ["application/json", "text/plain; charset=utf-8", "application/vnd.order+json", "a/b"]
RESERVED = ("proxy-", "webhook-", "x-flowcatalyst-", "x-railyard-")
RESERVED_NAMES = {
    "authorization", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "http2-settings", "idempotency-key", "keep-alive", "te", "traceparent", "tracestate", "trailer",
    "transfer-encoding", "upgrade", "user-agent",
}


# Each request comes from an address of its own: an address that shows wrong tokens a few times is made to wait (429),
# which has tests of its own.
def from_an_address_of_its_own(connection, connect=urllib3.connection.HTTPConnection._new_conn):
    connection.source_address = (f"127.{CHANCE.randint(1, 254)}.{CHANCE.randint(0, 254)}.{CHANCE.randint(1, 254)}", 0)
    return connect(connection)


def used_once(pool, connection, put=urllib3.connectionpool.HTTPConnectionPool._put_conn):
    if connection is not None:
        connection.close()
    put(pool, connection)


urllib3.connection.HTTPConnection._new_conn = from_an_address_of_its_own
urllib3.connectionpool.HTTPConnectionPool._put_conn = used_once


def ahead(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def in_bytes(text, bytes_max):
    """Schemas count characters, the API counts bytes."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


BYTES_MAX = {
    "source": 200, "type": 200, "groupId": 255, "idempotencyKey": 255, "instructionId": 255, "name": 200,
    "signingSecret": 1024, "id": 255, "subject": 255, "correlationId": 255, "messageGroup": 255, "deduplicationId": 255,
    "typePattern": 100,
}


def fit(body):
    for name, bytes_max in BYTES_MAX.items():
        if isinstance(body.get(name), str):
            body[name] = in_bytes(body[name], bytes_max) .strip() or "x"


def headers_and_metadata(body):
    if body.get("headers"):
        kept = {}
        for name, value in body["headers"].items():
            low = name.lower()
            if low not in RESERVED_NAMES and not low.startswith(RESERVED) and sum(map(len, kept)) < 1000:
                kept[low] = in_bytes(value, 100)
        body["headers"] = kept
    if body.get("metadata"):
        body["metadata"] = {
            in_bytes(key, 100).strip() or "k": in_bytes(value, 500) for key, value in body["metadata"].items()}


def items(body, adapt):
    """The three forms of a batch."""
    if isinstance(body, dict):
        body = next((value for value in body.values() if isinstance(value, list)), [])
    for item in body:
        if isinstance(item, dict):
            adapt(item)


def job(body):
    """A job that a schema allows, made one that can be accepted."""
    fit(body)
    # What fails is tried again and again, and in time would open the breaker of whatever shares its endpoint.
    good, failing = GIVEN["receiver"], GIVEN["failing"]
    body["targetUrl"] = CHANCE.choice([good + "/ok", good + "/ok?x=1", good + "/gone", failing + "/fail"])
    body["credentialsId"] = WORLD.credentials
    body.pop("serviceAccountId", None)
    if "railType" in body:
        body["railType"] = "webhook"
    if body.get("payloadContentType") is not None:
        body["payloadContentType"] = CHANCE.choice(MEDIA_TYPES)
    if body.get("scheduledFor") is not None:
        body["scheduledFor"] = ahead(CHANCE.randint(-1000, 300 * 86400))
    if body.get("expiresAt") is not None:
        body["expiresAt"] = ahead(320 * 86400)
    headers_and_metadata(body)
    if body.get("instructionId") is not None and body.get("idempotencyKey") is None:
        body["idempotencyKey"] = WORLD.name("k")
    # A key that was used before for other content is a conflict: half of them are.
    if isinstance(body.get("idempotencyKey"), str) and CHANCE.random() < 0.5:
        body["idempotencyKey"] = in_bytes(body["idempotencyKey"], 100) + WORLD.name("k")


def event(body):
    fit(body)
    headers_and_metadata(body)


def subscription(body):
    body["name"] = WORLD.name("s")
    body["targetUrl"] = GIVEN["receiver"] + "/ok"
    body["credentialsId"] = WORLD.credentials
    fit(body)
    headers_and_metadata(body)


def replay(body):
    """By ids or by a filter, with a reason, from the beginning."""
    body["reason"] = "conformance"
    body.pop("cursor", None)
    if body.get("ids") is not None:
        body["ids"] = [WORLD.make_ended_job()]
        for other in ("filter", "limit"):
            body.pop(other, None)
    else:
        body["limit"] = CHANCE.randint(1, 3)
        if body.get("filter") is None:
            body["filter"] = {}
        for name in ("createdAfter", "createdBefore"):
            if (body.get("filter") or {}).get(name) is not None:
                body["filter"][name] = ahead(CHANCE.randint(-1000, 1000))


def process(case):
    case.body.clear()
    case.body[CHANCE.choice(["messageId", "jobId", "id"])] = WORLD.make_ended_job()


def search(case):
    """A cursor is one that a page gave."""
    if case.query.pop("cursor", None) is not None:
        case.query.pop("page", None)
    for name in ("createdAfter", "createdBefore"):
        if name in case.query:
            case.query[name] = ahead(CHANCE.randint(-1000, 1000))


def path_id(make, share=0.7):
    def give(case):
        if CHANCE.random() < share:
            case.path_parameters["id"] = make()
    return give


def deletion(case):
    """Any but the credentials that everything made here is signed with."""
    if CHANCE.random() < 0.7 or case.path_parameters.get("id") == WORLD.credentials:
        case.path_parameters["id"] = WORLD.make_credentials()


def rotation(case):
    case.path_parameters["id"] = WORLD.make_credentials() if CHANCE.random() < 0.8 else WORLD.credentials
    body = case.body
    fit(body)
    # What is in use already is no new one.
    if body.get("bearerToken") is not None:
        body["bearerToken"] = WORLD.name("sk")
    # Its set signs with Standard Webhooks, which needs base64.
    if body.get("signingSecret") is not None or body.get("bearerToken") is None:
        body["signingSecret"] = "whsec_" + base64.b64encode(WORLD.name("s").encode()).decode()
    if body.get("activeFrom") is not None:
        body["activeFrom"] = ahead(CHANCE.randint(0, 29 * 86400))


def skip(case):
    case.path_parameters["id"] = WORLD.make_held_group()
    case.body.pop("jobId", None)


def credentials(case):
    fit(case.body)
    # Without base64 there is no Standard Webhooks, and nothing may go out unsigned.
    if case.body.get("schemes") == ["standard-webhooks"]:
        case.body["signingSecret"] = "whsec_QUJDREVG"


CALENDARS = [
    None,
    {"timeZone": "Europe/Berlin", "hours": [{"days": ["MON", "FRI"], "from": "08:00", "until": "24:00"}]},
    {"timeZone": "UTC", "holidays": ["2030-12-25"],
     "blackouts": [{"from": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z"}]},
]


def rate_config(case):
    """A configuration of a name of its own most of the time: whoever makes slots meanwhile should find room."""
    body = case.body
    if body.get("configName") is None or CHANCE.random() < 0.7:
        body["configName"] = WORLD.name("r").replace(".", "-")[:64]
    if body.get("calendar") is not None:
        body["calendar"] = CHANCE.choice(CALENDARS)
        # A window of a day is never open as a whole where hours are.
        body["windowSizeSecs"] = min(body["windowSizeSecs"], 3600)


def slot(case):
    body = case.body
    body["configName"] = WORLD.rate_config
    if body.get("requestedTime") is not None:
        body["requestedTime"] = ahead(CHANCE.randint(-1000, 300 * 86400))


IBANS = ["DE89370400440532013000", "GB82 WEST 1234 5698 7654 32", "NL91ABNA0417164300", "CH9300762011623852957"]


def payment(body):
    """Account numbers have check digits, currencies and banks are of closed lists; a reused id is a conflict."""
    body["debtorIban"], body["creditorIban"] = CHANCE.sample(IBANS, 2)
    body["currency"], body["amount"] = CHANCE.choice([("EUR", "99.90"), ("JPY", "120"), ("BHD", "0.005")])
    for name in ("debtorBic", "creditorBic"):
        if body.get(name) is not None:
            body[name] = CHANCE.choice(["COBADEFFXXX", "DEUTDEFF"])
    if body.get("requestedTime") is not None:
        body["requestedTime"] = ahead(CHANCE.randint(-1000, 300 * 86400))
    if CHANCE.random() < 0.8:
        body["paymentId"] = WORLD.name("p")


def feed_lines(case):
    """Numbers that the feed has, each once; a good payment most of the time."""
    case.path_parameters["id"] = WORLD.make_feed()
    numbers = iter(range(1, 1000))

    def line(body):
        body["item"] = next(numbers)
        if isinstance(body.get("payment"), dict):
            payment(body["payment"])
    items(case.body, line)


def payment_list(case):
    """A cursor is one that a page gave; accounts have check digits."""
    if case.query.pop("cursor", None) is not None:
        case.query.pop("page", None)
    for name in ("requestedAfter", "requestedBefore"):
        if name in case.query:
            case.query[name] = ahead(CHANCE.randint(-1000, 1000))
    if "debtorIban" in case.query:
        case.query["debtorIban"] = CHANCE.choice(IBANS)


def dispatch_config(case):
    """The type that there is; its rails are those that are configured, and it goes on planning with what it has."""
    case.path_parameters["itemType"] = "PAYMENT"
    body = case.body
    # What cannot be handed over is to be given up at once: there is always something to requeue.
    body.update(enabled=True, maxDispatchRetries=1, dispatchIntervalSecs=1)
    # And never behind all that feeds and batches have brought, one a second.
    if body.get("batchSize") is not None:
        body["batchSize"] = max(body["batchSize"], 1000)
    if body.get("execTaskQueue") is not None:
        body["execTaskQueue"] = "payment_webhook"
    if body.get("stepRails") is not None:
        body["stepRails"] = {"NOTIFY": "webhook_unused"}
    if body.get("rateConfig") is not None:
        body["rateConfig"] = "payments"


def rate_query(case):
    if CHANCE.random() < 0.8:
        case.query["name"] = WORLD.rate_config
    if case.query.get("at") is not None:
        case.query["at"] = ahead(CHANCE.randint(-1000, 300 * 86400))


def replan(case):
    case.body["configName"] = WORLD.rate_config
    if not case.body.get("preview"):
        case.body["reason"] = "conformance"


ADAPT = {
    "createJob": lambda case: job(case.body),
    "createJobAlias": lambda case: job(case.body),
    "getJob": path_id(WORLD.make_job),
    "getJobAlias": path_id(WORLD.make_job),
    "listAttempts": path_id(WORLD.make_job),
    "listAttemptsAlias": path_id(WORLD.make_job),
    "createJobs": lambda case: items(case.body, job),
    "createJobsAlias": lambda case: items(case.body, job),
    "searchJobs": search,
    "searchJobsAlias": search,
    "listDeadLetters": lambda case: case.query.pop("cursor", None),
    "publishEvent": lambda case: event(case.body),
    "publishEvents": lambda case: items(case.body, event),
    "createPayment": lambda case: payment(case.body),
    "createPayments": lambda case: items(case.body, payment),
    "listPayments": payment_list,
    "openFeed": lambda case: case.path_parameters.update(id=WORLD.name("feed")),
    "getFeed": path_id(WORLD.make_feed),
    "sendFeedLines": feed_lines,
    "reconcileFeed": path_id(WORLD.make_feed),
    "reconcileDay": lambda case: case.path_parameters.update(day=time.strftime("%Y-%m-%d", time.gmtime())),
    "getDispatchConfig": lambda case: case.path_parameters.update(itemType="PAYMENT"),
    "setDispatchConfig": dispatch_config,
    "requeueDeadLetter": path_id(WORLD.make_dead_letter, 0.5),
    "getPayment": path_id(WORLD.make_payment),
    "createSubscription": lambda case: subscription(case.body),
    "getSubscription": path_id(WORLD.make_subscription),
    "deleteSubscription": path_id(WORLD.make_subscription),
    "enableSubscription": path_id(WORLD.make_subscription),
    "disableSubscription": path_id(WORLD.make_subscription),
    "replayJob": path_id(WORLD.make_ended_job),
    "replayJobAlias": path_id(WORLD.make_ended_job),
    "replayJobs": lambda case: replay(case.body),
    "replayJobsAlias": lambda case: replay(case.body),
    "replayDeadLetters": lambda case: replay(case.body),
    "processJob": process,
    "cancelJob": path_id(WORLD.make_waiting_job, 0.8),
    "cancelJobAlias": path_id(WORLD.make_waiting_job, 0.8),
    "createCredentials": credentials,
    "getCredentials": path_id(WORLD.make_credentials),
    "deleteCredentials": deletion,
    "rotateCredentials": rotation,
    "getGroup": path_id(lambda: "conformance"),
    "releaseGroup": path_id(WORLD.make_held_group, 0.2),
    "skipGroup": skip,
    "getRateConfig": rate_query,
    "setRateConfig": rate_config,
    "forecastRate": rate_query,
    "replanRate": replan,
    "assignSlot": slot,
    "assignSlots": slot,
    "confirmSlot": path_id(WORLD.make_slot),
    "releaseSlot": path_id(WORLD.make_slot),
    "pauseRail": lambda case: case.path_parameters.update(rail="webhook_unused"),
    "resumeRail": lambda case: case.path_parameters.update(rail="webhook_unused"),
}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Lists of a thousand jobs take minutes to make, again and again; that bound has tests of its own."""
    left = [raw_schema["components"]["schemas"]]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            if isinstance(found.get("maxItems"), int) and found["maxItems"] >= LIST_MAX:
                del found["maxItems"]
            left.extend(found.values())
        elif isinstance(found, list):
            left.extend(found)


@schemathesis.hook
def before_call(context, case, kwargs):
    meta = case.meta
    if meta is not None and meta.generation.mode != GenerationMode.POSITIVE:
        return
    operation = case.operation.definition.raw["operationId"]
    adapt = ADAPT.get(operation)
    if adapt is None:
        return
    try:
        adapt(case)
    except (AttributeError, TypeError, KeyError):
        # A request without the part that would be adapted.
        pass


@schemathesis.hook
def after_call(context, case, response):
    operation = case.operation.definition.raw["operationId"]
    with LOCK:
        ANSWERS[f"{operation} {response.status_code}"] += 1


@atexit.register
def write_down():
    with open(GIVEN["answers"], "w") as file:
        json.dump(ANSWERS, file)
