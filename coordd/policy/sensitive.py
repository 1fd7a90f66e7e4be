"""The words that name sensitive acts, by class. Data for safety.py, and expected to be retuned.

A pattern is a row of steps. A step names its choices, `a|b`, and `@name` for all of WORDS[name]. Before a step marked
`~` a few words of WORDS["filler"] may stand, before one marked `*` a few words of any kind. A match with a word of
WORDS["thing"] behind it is none, for then the act is but a name: "delete account page". A pattern that ends in `!` is
a command, and counts whatever stands behind it.

`-`, `_`, `/`, `=` and the like separate words, so `--force` reads "force" and `api_key` reads "api key".
"""

from typing import Final

WORDS: Final = {
    "filler": "a an the all any every each some our your their its this that these those of for from in on entire whole"
    " complete old new stale unused legacy existing current remaining remote local shared main primary production prod"
    " live staging customer customers user users team company sql",
    "thing": "button buttons page pages form forms dialog dialogs modal modals screen screens view views component"
    " components menu menus icon icons link links toggle toggles tab tabs field fields input inputs label labels layout"
    " ui ux tooltip tooltips message messages notification notifications reminder reminders email template templates"
    " endpoint endpoints route routes event events webhook webhooks hook hooks handler handlers handling action actions"
    " option options flow flows feature features support test tests testing fixture fixtures mock mocks stub stubs"
    " helper helpers method methods function functions class classes module modules type types interface enum"
    " parameter parameters docs documentation guide tutorial example examples wording error errors warning warnings"
    " exception exceptions validation parser parsing animation row rows cell cells header headers column columns widget"
    " panel dashboard dependency dependencies import imports coded check checks dropdown banner confirmation mode build"
    " builds bundle notes ready readiness grade like code cache caches pattern usage",
    "delete": "delete deletes deleting drop drops dropping destroy destroys destroying wipe wipes wiping purge purges"
    " purging erase erases erasing truncate truncates truncating nuke nuking shred obliterate deletion destruction"
    " erasure decommission decommissioning",
    "store": "database databases db dbs schema schemas bucket buckets volume volumes cluster clusters"
    " namespace namespaces backup backups disk disks partition partitions filesystem drive repository repositories repo"
    " repos tenant tenants dataset datasets vault",
    "mass": "all every entire production prod live customer customers",
    "many": "data records users accounts customers files orders branches servers instances environments tables",
    "prod": "production prod",
    "reveal": "rotate rotating revoke revoking leak leaking expose exposing dump dumping print printing export"
    " exporting extract extracting share sharing copy copying paste pasting upload uploading steal stealing regenerate"
    " regenerating publish publishing commit committing send sending email emailing post posting harvest harvesting"
    " decrypt decrypting cat",
    "lock": "api private ssh access signing encryption deploy aws gpg secret master auth refresh bearer github gitlab"
    " npm pypi root admin service database db",
    "key": "key keys token tokens secret secrets password passwords credential credentials certificate certificates",
    "deploy": "deploy deploys deploying deployed deployment release releasing push pushing ship shipping promote"
    " promoting roll rolling rollout migrate migrating launch launching publish publishing rollback restart restarting"
    " reboot run execute apply ssh connect connecting write writing hotfix",
    "operate": "restart restarting reboot rebooting stop stopping shutdown scale scaling modify modifying change"
    " changing edit editing update updating upgrade upgrading migrate migrating patch patching access accessing query"
    " querying restore restoring resize resizing terminate terminating kill killing alter altering deploy deploying",
    "running": "server servers database databases db cluster clusters environment environments env system systems host"
    " hosts machine machines instance instances traffic dns infrastructure data namespace bucket buckets queue queues"
    " network site website schema table tables",
    "pay": "issue issuing send sending initiate initiating execute executing submit submitting approve approving"
    " authorize authorizing",
    "payment": "payment payments payout payouts refund refunds payroll reimbursement reimbursements wire",
    "payer": "credit debit bank card cards customer customers client clients",
    "money": "money funds cash crypto bitcoin eth usdc dollars euros",
    "goods": "license licenses licence domain domains subscription subscriptions plan credits seats hardware ads"
    " hosting",
    "disable": "disable disables disabling bypass bypasses bypassing skip skipping ignore ignoring weaken weakening"
    " deactivate deactivating circumvent circumventing",
    "guard": "authentication auth authorization 2fa mfa firewall firewalls tls ssl csrf cors selinux apparmor seccomp"
    " sandbox sandboxing encryption antivirus waf safeguards guardrails",
    "guarded": "certificate cert certs signature ssl tls hostname branch audit access rate security permission"
    " permissions push secret integrity checksum",
    "guarding": "verification validation checking check checks protection protections log logs logging control controls"
    " limit limits limiting scan scanning scans policy policies rules",
    "vcs": "git commit branch repo repository main master remote published",
    "rank": "admin administrator administrative root sudo superuser owner write elevated privileged unrestricted full",
    "right": "access right rights permission permissions privilege privileges role roles",
    "send": "send sending upload uploading post posting copy copying export exporting share sharing email emailing"
    " forward forwarding publish publishing dump dumping transfer transferring leak leaking disclose disclosing sell"
    " selling",
    "closed": "customer customers personal private confidential sensitive production proprietary patient patients"
    " employee employees",
    "matter": "data records information details emails addresses database dump source code files logs documents",
}

PATTERNS: Final = {
    "deletion": (
        "@delete ~@store",
        "drop|dropping|truncate|truncating ~table|tables",
        "@delete|remove|removing ~@mass ~@many",
        "remove|removing ~production|prod|backup|backups ~database|databases|data|backup|backups",
        "remove|removing ~backups",
        "database|databases|backups|bucket|disk *deleted|dropped|destroyed|wiped|purged|erased|truncated",
        "rm rf|fr|r!",
        "mkfs|dropdb|flushall|flushdb|wipefs!",
        "dd if!",
        "git clean f|fd|fdx|xdf!",
        "terraform|tofu|pulumi destroy!",
        "kubectl|oc delete!",
        "docker|podman *prune!",
    ),
    "credentials": (
        "@reveal ~credential|credentials|passwords|secrets",
        "@reveal ~@lock ~@key",
        "@reveal ~env file|files",
        "change|changing|reset|resetting ~admin|root|database|db|master|service|production ~password|passwords",
        "key|keys|secret|secrets|credential|credentials|password rotation",
        "id rsa|ed25519!",
        "etc shadow!",
    ),
    "production": (
        "@deploy *to|into|in|on|against ~@prod",
        "@deploy ~@prod",
        "@operate ~@prod|live ~@running",
        "@prod deploy|deployment|rollout|release|cutover|failover|migration",
        "go|going live",
        "terraform|tofu apply!",
        "pulumi up!",
        "kubectl|oc apply|scale|rollout|patch|edit|exec|drain!",
        "helm install|upgrade|rollback!",
        "npm|pnpm|yarn|cargo|poetry|uv|gem publish|push!",
        "twine upload!",
        "publish|publishing|upload|uploading|release|releasing *to ~pypi|npm|crates|rubygems|maven!",
    ),
    "payment": (
        "@pay ~@payment",
        "charge|charging|debit|debiting ~@payer",
        "refund|refunding ~customer|customers|order|orders|payment|payments",
        "transfer|transferring|send|sending|withdraw|withdrawing|wire|wiring ~@money",
        "buy|buying|purchase|purchasing|pay|paying ~@goods",
        "pay|paying|settle|settling ~vendor|vendors|supplier|suppliers|contractor|contractors|invoice|invoices",
        "cancel|cancelling|canceling ~customer|paid|billing|enterprise ~subscription|plan|account",
        "upgrade|upgrading ~paid|billing|enterprise ~subscription|plan|tier|account",
        "change|changing|update|updating|replace ~bank|billing|payment|card ~account|details|information|method",
    ),
    "protection": (
        "@disable ~@guard",
        "@disable|remove|removing ~@guarded ~@guarding",
        "remove|removing ~authentication|authorization|firewall|encryption|2fa|mfa|sandbox",
        "turn|turning|switch|switching off ~@guard",
        "turn|turning|switch|switching ~@guard off",
        "no verify!",
        "chmod 777|666!",
        "chmod r 777|666!",
        "setenforce 0!",
        "insecure skip tls|verify!",
        "dangerously skip!",
        "make|making ~bucket|buckets|repo|repository|database|dashboard public",
        "open|opening|expose|exposing *to ~internet|world",
    ),
    "history": (
        "force push|pushes|pushed|pushing",
        "push|pushing force",
        "git push *force|f|mirror|delete!",
        "rewrite|rewrites|rewriting|rewritten ~history",
        "rewrite|rewriting|squash|squashing|purge|purging|scrub|scrubbing|erase|erasing ~@vcs ~history|commits",
        "git filter branch|repo!",
        "reset hard",
        "reflog expire|delete!",
        "@delete|remove|removing ~main|master|trunk|release|protected|remote ~branch|branches|tag|tags",
    ),
    "access": (
        "grant|grants|granting|give|gives|giving|assign|assigning *@rank ~@right",
        "add|adding|request|requesting|gain|gaining|obtain|obtaining ~@rank ~@right",
        "make|making *a|an admin|administrator|superuser|owner|maintainer",
        "add|adding *to ~sudoers|admins|administrators|superusers",
        "add|adding|install|installing|upload|uploading|authorize ~ssh|deploy key|keys",
        "authorized keys!",
        "create|creating|add|adding|provision ~admin|administrator|root|superuser ~user|users|account|accounts",
        "invite|inviting ~collaborator|collaborators|contractor|contractors",
        "elevate|elevating|escalate|escalating ~privilege|privileges|permissions",
        "impersonate|impersonating ~user|users|customer|customers|admin",
        "usermod|visudo!",
    ),
    "exfiltration": (
        "exfiltrate|exfiltrates|exfiltrating|exfiltration",
        "@send ~@closed ~@matter *to|with|outside|externally|publicly",
        "leak|leaking|sell|selling|disclose|disclosing ~user|users|customer|internal ~data|records|emails",
        "dump|dumping|download|downloading|export|exporting ~production|prod|live|customer ~database|db|data|tables",
        "@send ~source|proprietary code *to|with|outside|externally|publicly",
    ),
}
