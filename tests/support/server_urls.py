"""URLs of buckets on the test servers."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
from urllib.parse import quote

import pytest

from tests.support.servers import AZURE_ACCOUNT, AZURE_KEY


def needs(*packages):
    missing = [package for package in packages if importlib.util.find_spec(package.partition(".")[0]) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def url_of_s3(process):
    host = process.endpoint.removeprefix("http://")
    return f"hs3://key:secret@{host}/{process.new_bucket()}/cubes?is_secure=false&force_bucket_suffix=false&region=us-east-1"


def url_of_azure(process):
    account = f"{AZURE_ACCOUNT}:{quote(AZURE_KEY, safe='')}"
    return f"hazure://{account}@{process.new_bucket()}?blob_endpoint={process.endpoint}/{AZURE_ACCOUNT}"


def url_of_gcs(process):
    account = {"gcs_base_url": process.endpoint, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return f"gs://{base64.urlsafe_b64encode(json.dumps(account).encode()).decode()}@{process.new_bucket()}/cubes"
