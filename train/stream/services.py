"""Services as most networks have them, in invented words: logins, kernels, mail, names, firewalls, storage, jobs.

Each has flows (lines that share numbered fields) and single lines, in the language of templates.spec(). Alternatives
are drawn anew for each system, so no two say it alike.
"""
from formats import FORMATS
from schedule import Flow, Schedule
from templates import spec

SERVICES = {
    "logins": ([
        ["{Incoming|New|Inbound} {session|login|client} from <ip4:1> {port|src port|:} <port:2>",
         "{User|Account|Principal} <user:3> {presented|offers|uses} {a key|password|token|certificate} <digest:4>",
         "{Granted|Admitted|Authorised|Login ok:} <user:3> {from|@|at} <ip4:1> {port|:} <port:2> ({key|password|token})",
         "{shell|desk|console} <small> {given|assigned} to <user:3>",
         "{session|login} {over|ends|finished} for <user:3> after <long_duration>"],
        ["{Incoming|New|Inbound} {session|login|client} from <ip4:1> {port|src port|:} <port:2>",
         "warn!!{Rejected|Denied|Refused|Bad credentials:} <user:3> {from|@|at} <ip4:1> {port|:} <port:2>",
         "warn!!{Unknown|Illegal|No such} {name|account} <user:3> {from|@|at} <ip4:1>",
         "error!!{too many tries|limit of tries reached|giving up} for <user:3> {from|@|at} <ip4:1> port <port:2>",
         "{bye|hangup|link closed} <ip4:1> [{early|auth}]"],
        ["<user:1> : {term|tty}=<device:2> ; {dir|cwd}=<path:3> ; {as|runas}=root ; cmd=<path>",
         "{opened|granted} root for <user:1> on <device:2>", "{closed|returned} root for <user:1>"]],
       ["{key|cipher|algorithm} {agreed|chosen}: <enum> with <ip4>",
        "warn!!{name of|lookup for} <ip4> {does not match|differs from} <domain>",
        "info!!{reload|reread} {config|settings} by <user>",
        "{ticket|token} <hexadecimal> of <user> {expires|renewed} <moment>",
        "error!!@noun {fault|failure}: <reason>", "{password|secret} of <user> {changed|aged|is old}: <small> days"]),
    "devices": ([
        ["<device:1>: {new|found} @noun {number|no.} <ascending:2> {using|via} @word",
         "<device:1>: {vendor|maker} id=<hexadecimal>, {product|model} id=<hexadecimal:3>, rev <version>",
         "<device:1>: {Serial|S/N}: <reference>",
         "@word <device:1>: {attached|bound|registered} as <device>",
         "<device:1>: {gone|removed|unplugged}, number <ascending:2>"]],
       ["{mem|reserved|range}: [<pointer>-<pointer>] {usable|reserved|ACPI}",
        "@word: {loading|init|probe} v<version> ({built|date} <moment>)",
        "CPU<cyclic>: @noun {threshold|limit} {crossed|over}, total <ascending>",
        "<device>: {link|carrier} {up|down}, <rate>, @adj duplex",
        "@word <device>: irq <small> {for|on} @noun, base <pointer>",
        "error!!{I/O|read|write} {fault|problem} on {dev|unit} <device>, {sector|lba} <number> op <hexadecimal>",
        "warn!!{task|process} <name_of>:<number> {blocked|stuck} for <duration>",
        "error!!{page|bus|alignment} fault at <pointer> ip <pointer> sp <pointer> {code|error} <small>",
        "{free|avail}: <number>kB, dirty:<number>kB, slab:<number>kB, mapped:<number>kB", "@word: @clause <small>",
        "<name_of>[<number>]: {trap|signal} <small> in <path>[<pointer>+<hexadecimal>]",
        "{IN|in}=<device> OUT= MAC=<mac> SRC=<ip4> DST=<ip4> LEN=<number> TTL=<small> PROTO={TCP|UDP} SPT=<port> DPT=<port>",
        "@noun: <percent> {of|in} <size> used", "warn!!{thermal|temp} {zone|sensor} <cyclic>: <measure>"]),
    "mail": ([
        ["<hexadecimal:1>: {client|from host}=<host:2>[<ip4:3>]",
         "<hexadecimal:1>: {id|message-id}=\\<<uuid>@<domain>\\>",
         "<hexadecimal:1>: from=\\<<email:4>\\>, size=<number>, nrcpt=<small> ({queued|active})",
         "<hexadecimal:1>: to=\\<<email>\\>, relay=<domain:5>[<ip4>]:25, delay=<decimal>, {status|result}={sent|delivered} (<code> ok)",
         "<hexadecimal:1>: {removed|done|deleted}"],
        ["<hexadecimal:1>: from=\\<<email:4>\\>, size=<number>",
         "warn!!<hexadecimal:1>: to=\\<<email:2>\\>, {status|result}={deferred|later} (<reason>)",
         "error!!<hexadecimal:1>: to=\\<<email:2>\\>, {bounced|returned}: <reason>"]],
       ["{connect|hello} from <domain>[<ip4>]",
        "{disconnect|bye} from <domain>[<ip4>] ehlo=1 mail=<small> rcpt=<small> quit=1",
        "warn!!{refused|spam}: score <decimal> of <decimal> from=\\<<email>\\> {rule|test} <name_of>",
        "{queue|backlog}: <skewed> {active|waiting}, <skewed> {deferred|held}"]),
    "names": ([], ["{query|q}: <domain> IN {A|AAAA|MX|TXT} + (<ip4>)",
                   "{query|ask} <ip4_port> <domain> type {A|AAAA|PTR}", "{reply|answer} <domain> {is|->} <ip4>",
                   "{cached|from cache} <domain> {is|->} <ip4> ttl <number>",
                   "warn!!{refused|servfail}: <domain> from <ip4_port>",
                   "{lease|offer} <ip4> {to|for} <mac> ({name|host} <host>) <duration>",
                   "{discover|request} from <mac> via <device>",
                   "{zone|area} <domain>: {loaded|transferred} serial <ascending>", "error!!<domain>: <reason>",
                   "{ack|nak} <ip4> <mac> <host>"]),
    "firewall": ([], ["{drop|deny|block} {in|out}:<device> src:<ip4_port> dst:<ip4_port> proto:<enum> len:<number>",
                      "{allow|permit|pass} {rule|policy}=<small> src=<ip4> dst=<ip4> sport=<port> dport=<port> bytes=<skewed> dur=<duration>",
                      "{built|made} {flow|connection} <ascending> for <name_of>:<ip4>/<port> to <name_of>:<ip4>/<port>",
                      "{end|teardown} {flow|connection} <ascending> {duration|after} <long_duration> bytes <skewed>",
                      "warn!!{scan|flood} from <ip4>: <skewed> {ports|packets} in <duration>",
                      "{tunnel|vpn} <ip4> {up|down} {sa|spi}=<hexadecimal>",
                      "{table|states}: <number> of <power> ({peak|max} <number>)"]),
    "blocks": ([
        ["{place|reserve|plan} <tagged:1> {class|tier} <enum> -> <host:2> <host:3>",
         "<host:2> {took|has|keeps} <tagged:1> <size:4> crc <hexadecimal:5>",
         "<host:3> {took|has|keeps} <tagged:1> <size:4> crc <hexadecimal:5>",
         "{seal|close} <tagged:1> {after|in} <duration>", "<tagged:1> {visible|published} {gen|epoch} <ascending>"],
        ["{scrub|verify} <tagged:1> {good|clean} <duration>", "{trim|discard} <tagged:1> {was at|path} <path>"],
        ["warn!!{copies|redundancy} <tagged:1> <fraction>", "{repair|heal} <tagged:1> {via|using} <ip4_port:2>",
         "{repair|heal} <tagged:1> {complete|ready} <duration> <rate>"]],
       ["warn!!{read|fetch} of <tagged> {slow|stuck} on <device>: <duration> (<reason>)",
        "{store|shelf} <host> <size> {free|left}", "{pool|volume} <name_of>: <percent> full, <skewed> objects",
        "{rebalance|move}: <size> left to move", "error!!<device>: crc <hexadecimal> {wanted|expected} <hexadecimal>"]),
    "jobs": ([
        ["{submit|queue} {job|task} <tagged:1> by <user:2> {queue|pool} <name_of:3>",
         "{job|task} <tagged:1> {start|runs} on <host:4> pid <number>", "{job|task} <tagged:1> <percent> <fraction>",
         "{job|task} <tagged:1> {done|over} rc=<code> {cpu|time}=<duration> {mem|rss}=<size>"],
        ["{at|cron|timer} <user:1>: {begin|run} <path:2>", "{at|cron|timer} <user:1>: {end|ran} <path:2> <duration>"],
        ["{plan|graph} <reference:1> {splits into|has} <small:2> {parts|pieces}",
         "<reference:1>.<cyclic> {begins|runs} {on|@} <host:3>",
         "<reference:1>.<cyclic> {ok|ready} <duration> {out|rows} <skewed>",
         "{plan|graph} <reference:1> {complete|ready} <long_duration>"]],
       ["warn!!{worker|slot} <small> on <host> {silent|dead}: <reason>", "{next|wake} at <moment>",
        "{backlog|waiting} <skewed>, {oldest|first} <duration>", "error!!{job|task} <tagged>: <reason> (<fraction>)"]),
    "consensus": ([
        ["{term|epoch} <ascending:1>: {standing|candidate} {votes|ballots} <fraction>",
         "<host:2> {wins|leads} {term|epoch} <ascending:1>",
         "{follow|accept} <host:2> {term|epoch} <ascending:1> index <ascending>"]],
       ["{snapshot|image} at index <ascending> <size> in <duration>", "{apply|commit} index <ascending> <duration>",
        "warn!!{no word|silence} from <host> for <duration>", "{peer|member} <host> <change>",
        "{lease|hold} <tagged> {lapsed|renewed} <moment>", "{lag|behind}: <host> <skewed> entries",
        "{link|channel} <ip4_port> {broken|cut}: <reason>"]),
    "plant": ([
        ["{batch|lot} <reference:1> {recipe|program} <name_of:2> {start|begin}",
         "<location:3> {phase|step} <fraction> <measure>",
         "<location:3> {phase|step} <fraction> <measure> {sp|target} <measure>",
         "{batch|lot} <reference:1> {end|done} yield <percent>"]],
       ["<location> @noun <measure>", "<location> @noun <measure> <measure>",
        "warn!!{ALARM|HIGH|LOW} <location> @noun <measure> {limit|max} <measure>", "{ACK|CLEAR} <location> by <user>",
        "{valve|drive} <location> <change>", "{shift|crew} <enum> {on|begins}", "{interlock|trip} <location> <code>"]),
    "parcels": ([
        ["{order|parcel} <reference:1> {from|customer} <person:2> <amount> <small> items",
         "{pick|wave} <ascending> <reference:1> {bin|shelf} <location>",
         "{packed|boxed} <reference:1> <measure> <reference:3>", "{label|waybill} <reference:3> {carrier|by} <enum>",
         "{scan|seen} <reference:3> at <location>",
         "{scan|seen} <reference:3> at <name_of>", "{delivered|handed over} <reference:3> to <person:2>"]],
       ["warn!!{damaged|missing|late}: <reference> at <location>",
        "{truck|trailer} <reference> {dock|gate} <small> <change>", "{stock|count} <reference> <change> <small>",
        "{customs|duty} <reference> <amount> <enum>"]),
    "clinic": ([
        ["{ADT|admit} <reference:1> {ward|unit} <location:2> {by|dr} <person:3>",
         "{order|request} <reference:4> @noun for <reference:1>",
         "{sample|specimen} <reference:4> {rack|pos} <location>",
         "{result|value} <reference:4> @noun <measure> {ref|range} <interval> <enum>",
         "{validated|signed} <reference:4> <person:3>",
         "{discharge|leave} <reference:1> after <long_duration>"]],
       ["{bed|monitor} <location>: @noun <measure>", "warn!!{bed|monitor} <location>: @noun {high|low} <measure>",
        "{pump|infusion} <location> <rate> {left|rest} <size>",
        "{QC|control} @noun level <small> <decimal> {SD|z} <decimal>",
        "MSH|^~\\&|@NAME|<location>|<ascending>|<moment>||<enum>"]),
    "payments": ([
        ["{auth|request} <uuid:1> <amount:2> {card|acct} ****<number> {shop|merchant} <name_of:3>",
         "{score|risk} <uuid:1> <decimal> {rules|hits} <small>", "{approved|ok} <uuid:1> <code> <duration>",
         "{capture|settle} <uuid:1> <amount:2> batch <ascending>"],
        ["{auth|request} <uuid:1> <amount:2> {card|acct} ****<number> {shop|merchant} <name_of:3>",
         "warn!!{declined|no} <uuid:1> <code> <reason>"],
        ["35=D|11=<tagged:1>|55=<enum:2>|54=1|38=<number>|44=<decimal>",
         "35=8|11=<tagged:1>|55=<enum:2>|39=0|32=<number>|31=<decimal>|17=<ascending>"]],
       ["{fx|rate} <enum>/<enum> <walk>", "{batch|file} <path> <number> entries <amount>",
        "{dispute|chargeback} <reference> <amount> <enum>", "{ledger|balance} <reference> <amount> -> <amount>"]),
}
ENVELOPES = "bare bare bare syslog3164 plain kernel java logfmt ndjson separated".split()


def service(name):
    def source(s):
        d, (flows, singles) = s.d, SERVICES[name]
        built = []
        for lines in d.some(flows, d.between(1, 3)):
            cells = {}
            steps = [spec(s, line, cells) for line in lines]
            built.append(Flow(s, steps, cells.values()))
        templates = [spec(s, line) for line in d.some(singles, d.between(2, len(singles)))
                     for _ in range(d.choice((1, 1, 1, 2)))]
        envelope = "kernel" if name == "devices" and d.chance(0.4) else d.choice(ENVELOPES)
        return Schedule(s, FORMATS[envelope][0](s), templates, built)
    return source
