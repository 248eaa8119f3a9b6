"""Secrets are taken out of what goes to another model or into a store, and what merely looks like one stays.

The values are made up: the letter in braces says which characters a secret has there, the number how many.
"""

from __future__ import annotations

import json
import random
import re
import string

import pytest

from everlong.redaction import REDACTED, redact, redact_values

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
    "h": "0123456789abcdef",
    "l": string.ascii_letters,
    "u": string.ascii_letters + string.digits + "-_",
    "C": string.ascii_uppercase + string.digits,
}

TOKENS = """
OpenAI                sk-{a48}
OpenAI project        sk-proj-{u74}T3BlbkFJ{u74}
OpenAI admin          sk-admin-{u74}
Anthropic             sk-ant-api03-{u93}AA
Anthropic login       sk-ant-oat01-{u93}AA
OpenRouter            sk-or-v1-{h64}
DeepSeek              sk-{h32}
Groq                  gsk_{a52}
xAI                   xai-{a80}
Perplexity            pplx-{a48}
Hugging Face          hf_{l34}
Replicate             r8_{a37}
Google                AIza{u35}
NVIDIA                nvapi-{u64}
LangSmith             lsv2_pt_{h32}_{h10}
Pinecone              pcsk_{a5}_{a63}
Tavily                tvly-{a32}
Firecrawl             fc-{h32}
GitHub                ghp_{a36}
GitHub OAuth          gho_{a36}
GitHub app            ghs_{a36}
GitHub fine-grained   github_pat_{a22}_{a59}
GitLab                glpat-{u20}
GitLab runner         glrt-{u20}
GitLab deployment     gldt-{u20}
Atlassian             ATATT3{u186}
Bitbucket             ATBB{a32}
npm                   npm_{a36}
PyPI                  pypi-AgEIcHlwaS5vcmc{u90}
Docker                dckr_pat_{u27}
RubyGems              rubygems_{h48}
Linear                lin_api_{a40}
Figma                 figd_{u40}
Notion                ntn_{d11}{a35}
AWS                   AKIA{C16}
AWS for a session     ASIA{C16}
Alibaba               LTAI{a20}
DigitalOcean          dop_v1_{h64}
Databricks            dapi{h32}
Google OAuth          ya29.{u120}
Google client         GOCSPX-{u28}
Vault                 hvs.{u92}
Pulumi                pul-{h40}
Terraform             {a14}.atlasv1.{u64}
Supabase              sbp_{h40}
Heroku                HRKU-AA{u58}
Postman               PMAK-{h24}-{h34}
Doppler               dp.pt.{a43}
Fly                   fm2_{u80}
1Password             ops_eyJ{u200}
Sentry                sntrys_{u120}
Grafana               glsa_{a32}_{h8}
New Relic             NRAK-{C27}
PlanetScale           pscale_tkn_{u43}
Slack bot             xoxb-{d12}-{d13}-{a24}
Slack app             xapp-1-A{C10}-{d13}-{h64}
Stripe                sk_live_{a24}
Stripe restricted     rk_live_{a99}
Stripe webhook        whsec_{b32}
Square                sq0csp-{u43}
Shopify               shpat_{h32}
SendGrid              SG.{u22}.{u43}
Mailchimp             {h32}-us12
Brevo                 xkeysib-{h64}-{a16}
Twilio                SK{h32}
Telegram              {d10}:AA{u33}
Discord               M{a23}.{u6}.{u38}
JWT                   eyJ{u30}.eyJ{u60}.{u43}
age                   AGE-SECRET-KEY-1{C58}
"""

NAMED = [
    ("aws_secret_access_key = ", "{b40}", ""),
    ("export AWS_SECRET_ACCESS_KEY=", "{b40}", ""),
    ("AWS_SESSION_TOKEN=", "{b200}", ""),
    ("AccountKey=", "{b86}==", ";EndpointSuffix=core.windows.net"),
    ("https://x.blob.core.windows.net/c/f?sv=2024&sig=", "{a20}%2B{a20}%3D", ""),
    ("x-api-key: ", "{a40}", ""),
    ("curl -H 'X-Api-Key: ", "{l32}", "' https://h"),
    ("x-goog-api-key: ", "{a39}", ""),
    ("api-key: ", "{h32}", ""),
    ("PRIVATE-TOKEN: ", "{a20}", ""),
    ("Authorization: Bearer ", "{u40}", ""),
    ("-H 'Authorization: Basic ", "{b30}=", "'"),
    ("the header is bearer ", "{a19}7", ""),
    ('{"client_secret": "', "{u40}", '"}'),
    ('{\\"apiKey\\": \\"', "{a32}", '\\"}'),
    ("password: ", "{a9}1x", ""),
    ("DB_PASSWORD=", "{a12}", ""),
    ("postgres://me:", "{a16}", "@db:5432/x"),
    ("deploy --token ", "{a20}", ""),
    ("mysql --password=", "{a12}9", ""),
    ("https://h/x?access_token=", "{a30}", "&page=2"),
    ("//registry.example/:_authToken=", "{h8}-{h4}-{h4}-{h12}", ""),
    ("machine h login me password ", "{a14}7", ""),
    ('{"auths": {"h": {"auth": "', "{b40}", '"}}}'),
    ("client-key-data: ", "LS0t{b80}", ""),
    ("https://hooks.slack.com/services/", "T{C10}/B{C10}/{a24}", ""),
    ("https://discord.com/api/webhooks/", "{d18}/{u68}", ""),
    ('SECRET_KEY = "', "{a50}", '"'),
    ("encryption_key: ", "{h64}", ""),
    ('token = "', "{a36}", '"'),
    ("password          = ", "{a9}1x", ""),
    ("password:          ", "{a9}1x", ""),
    ("DB_PASSWORD='", "p({a9}1x)", "'"),
    ("SMTP_PASS=", "{a9}1x", ""),
    ('{"user": "me", "pass": "', "{a9}1x", '"}'),
    ("<password>", "{a9}1x", "</password>"),
    ('password: str = "', "{a9}1x", '"'),
    ('apiKey := "', "{h32}", '"'),
    ("api_key: `", "{h32}", "`"),
    ("**API key:** ", "{h32}", ""),
    ("STRIPE_KEY=", "{h32}", ""),
    ("APP_KEY=", "base64:{b43}=", ""),
    ("Ocp-Apim-Subscription-Key: ", "{h32}", ""),
    ("PresharedKey = ", "{b43}=", ""),
    ("secret_key_base: ", "{h64}", ""),
    ('{"name": "API_KEY", "value": "', "{h32}", '"}'),
    ("- name: API_KEY\n  value: ", "{h32}", ""),
    ("https://x.blob.core.windows.net/c?sig=", "{a40}%3D", "&se=1"),
]

LOOK_ALIKES = """
commit 3f2a9c1d2e4b5a6978f0c1d2e3a4b5c6d7e8f901
index 3f2a9c1..8f0c1d2 100644
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"integrity": "sha512-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08=="
550e8400-e29b-41d4-a716-446655440000
session 20260311_101502_9f3c1a
toolu_01A09q90qw90lq917835lq9
call_9hGk2LmQ8vXz0pRtYw3EjN
chatcmpl-9hGk2LmQ8vXz0pRtYw3EjN4bC7dF
msg_013Zva2CMHLNnjNjJKqJ2EF
resp_68a1f2c3d4e5f60718293a4b5c6d7e8f
req_011CSHoEeqs5C35K2UUqR7Fy
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk
export OPENAI_API_KEY=sk-...
export OPENAI_API_KEY=YOUR_KEY
OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
api_key: your-api-key-1
api_key = "<your key 1>"
ANTHROPIC_API_KEY=$ANTHROPIC_API_KEY
ANTHROPIC_API_KEY=${KEY_1}
token: ${{ secrets.GITHUB_TOKEN }}
password=$DB_PASSWORD
password = os.environ['DB_PASSWORD1']
password: changeme
password: "********"
password=****
PASSWORD=example123
The password is required.
The token: a word of the text.
def login(password: str = None)
self.secret = config.secret
api_key=settings.API_KEY
token = get_token()
token = tokens[12345678]
if token == expected_token1:
max_tokens=4096
token_count = 12345678
"total_tokens": 12345678
primary_key=user_id1
foreign_key: orders_2024
sort(key=abcd1234efgh), key: abcd1234efgh
cache-key-d41d8cd98f00b204e9800998ecf8427e
prompt_cache_key: conversation-12345678
keyboard=qwertz105
monkey=banana12345
author=adalovelace1815
secretary=miller1984x
tokenizer=cl100k_base1
src/auth/token.py:45
token_file=/var/run/tokens/service1
secret: KubernetesSecretReference
task-runner-abc-def-1234567890
risk-free-reward-assessment-2026
disk-usage-report-2026-03-11-final
git@github.com:org/repo.git
http://localhost:8080/a@b
https://example.com/very/long/path/with/many/parts/and/numbers/1234567890
com.example.application.configuration.SecurityConfiguration2
test_a_secret_is_replaced_by_its_kind_and_nothing_else_1234
SKETCHBOOK_OF_THE_WHOLE_PROJECT_2026
eyJhbGciOiJIUzI1NiJ9
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx0y2b8Qm7Yw1zN5t3kP9vR4sL6hG2fD8cB0aE7uX1q ada@home
-----BEGIN PUBLIC KEY-----
-----BEGIN CERTIFICATE-----
authorization: required
Bearer authentication is described in chapter 2.
"""


def made_up(shape: str, seed: object) -> str:
    chance = random.Random(str(seed))
    return re.sub(r"\{(\w)(\d+)\}", lambda one: "".join(chance.choices(_ALPHABETS[one[1]], k=int(one[2]))), shape)


@pytest.mark.parametrize("line", TOKENS.strip().splitlines(), ids=lambda line: line[:20].strip())
def test_a_token_is_known_by_its_shape_wherever_it_stands(line: str) -> None:
    for seed in range(20):
        token = made_up(line[22:], seed)
        for around in ("{}", "use {} now.", 'x = "{}"', "export X={}\n", '{{"text": "first\\n{}\\nlast"}}'):
            cleaned = redact(around.format(token))
            assert cleaned.startswith(around.partition("{}")[0].format()), cleaned
            assert cleaned.endswith(around.partition("{}")[2].format()), cleaned
            assert token[-10:] not in cleaned
            assert REDACTED.search(cleaned)


@pytest.mark.parametrize(("before", "shape", "after"), NAMED, ids=[one[0].strip() for one in NAMED])
def test_a_secret_is_known_by_the_name_before_it(before: str, shape: str, after: str) -> None:
    for seed in range(20):
        secret = made_up(shape, seed)
        cleaned = redact(f"first\n{before}{secret}{after}\nlast")
        assert cleaned.startswith(f"first\n{before}[redacted:")
        assert cleaned.endswith(f"]{after}\nlast")
        assert secret[-8:] not in cleaned


@pytest.mark.parametrize("text", LOOK_ALIKES.strip().splitlines())
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) == text
    assert redact(f"before it\n{text}\nbehind it") == f"before it\n{text}\nbehind it"


@pytest.mark.parametrize(
    "key",
    [
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5v",
        "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEAAAAABG5v\\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nb3BlbnNzaC1rZXktdjEA",
        "-----BEGIN PRIVATE KEY-----\n   2\tb3BlbnNzaC1rZXktdjEAAAAABG5v\n   3\tb3BlbnNzaC1rZXktdjEAAAAABG5v",
        "-----BEGIN PRIVATE KEY-----\nb3BlbnNz-b3BlbnNzaC1rZXktdjEAAAAABG5v\n-----END PRIVATE KEY-----",
    ],
)
def test_a_private_key_goes_as_a_whole_even_if_it_is_cut_off(key: str) -> None:
    assert redact(f"the key:\n{key}") == "the key:\n[redacted:private_key]"


def test_a_value_of_json_is_a_secret_if_its_name_says_so() -> None:
    arguments = {"password": "correcthorse", "api_key": "abcd1234efgh", "path": "abcd1234efgh", "token": "string"}
    cleaned = redact_values({"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9", "input": arguments})
    assert cleaned["input"] == {**arguments, "password": "[redacted:password]", "api_key": "[redacted:secret]"}
    assert cleaned["id"] == "toolu_01A09q90qw90lq917835lq9"


def test_a_key_of_the_gateway_is_a_secret() -> None:
    key = "9f2c41d07b6e4a55b1c38d20e4f7a611"
    assert redact(f"curl -H 'x-everlong-key: {key}' h") == "curl -H 'x-everlong-key: [redacted:secret]' h"
    assert redact_values({"x-everlong-key": key}) == {"x-everlong-key": "[redacted:secret]"}


def test_a_word_that_might_begin_a_token_at_each_dash_takes_no_square_of_time() -> None:
    word = "eyJaaaaaaaa-" * 40_000
    assert redact(word) == word
    signed = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27u"
    assert redact(f"session={signed}; next") == "session=[redacted:jwt]; next"


@pytest.mark.parametrize("times", range(1, 5))
def test_a_password_in_json_that_was_written_into_json_again_goes(times: int) -> None:
    told = json.dumps({"password": "hunter2abc", "note": "stays"})
    for _ in range(times - 1):
        told = json.dumps(told)
    assert "hunter2" not in redact(told)
    assert "stays" in redact(told)
