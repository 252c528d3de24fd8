"""The real half of the vocabulary: plain English words of several trades, written down for this generator."""

NOUNS = {
    "computing": """process thread task job worker queue event handler service manager controller scheduler module
        plugin driver kernel buffer cache heap stack frame register symbol pointer object instance session context
        token key secret policy rule role user group account profile setting option flag feature release build commit
        branch patch package library function method argument result exception fault signal timer watchdog semaphore
        mutex lease snapshot checkpoint journal index schema column row cursor statement transaction query plan
        template script command shell console daemon agent probe monitor counter gauge trace span batch stream topic
        partition offset consumer producer shard replica leader follower quorum term epoch ballot vote""",
    "network": """connection socket port address route gateway bridge switch router interface link channel tunnel
        packet datagram segment header payload checksum window peer client server proxy balancer backend upstream
        listener endpoint request response reply handshake certificate cipher domain zone record resolver subnet mask
        broadcast multicast neighbour hop path latency jitter bandwidth carrier antenna beacon station radio modem
        firewall filter chain acl vlan trunk relay mirror registry hub mesh sidecar""",
    "storage": """disk volume block sector extent inode directory file archive backup image tape drive enclosure array
        stripe parity pool mount partition superblock bitmap blob bucket container object manifest segment chunk tier
        quota vault repository tablespace page log ledger compaction rebuild scrub defragmentation spindle controller
        shelf raid metadata namespace layer digest""",
    "logistics": """shipment parcel pallet container truck trailer driver depot dock gate yard lane route stop waybill
        manifest order line item carton shelf bin aisle forklift conveyor sorter scanner label barcode carrier vessel
        voyage berth crane customs declaration tariff consignee courier delivery pickup return fleet odometer fuel
        axle seal warehouse inventory stock replenishment picker wave""",
    "medicine": """patient ward bed admission discharge referral visit specimen sample assay panel reagent analyzer
        culture titer dose infusion pump syringe catheter monitor ventilator electrode lead waveform alarm pulse
        pressure saturation temperature glucose vaccine allergy diagnosis procedure surgeon nurse clinic pharmacy
        prescription refill tablet ampoule biopsy slide scan series image modality cohort consent protocol""",
    "finance": """payment invoice account ledger entry balance transfer settlement clearing batch mandate debit credit
        card merchant terminal acquirer issuer authorization chargeback refund fee rate currency quote bid ask order
        fill position portfolio hedge swap bond coupon margin collateral trade broker exchange auction dividend tax
        statement audit counterparty exposure limit fraud score rule dispute voucher wallet loan installment""",
    "industry": """boiler valve pump turbine compressor rotor stator bearing shaft gearbox motor inverter relay breaker
        transformer busbar feeder substation meter sensor actuator conveyor robot gripper spindle tool coolant nozzle
        furnace kiln mould press extruder reactor tank vessel pipe flange gasket filter membrane blower fan damper
        chiller line cell station recipe batch lot shift operator alarm interlock setpoint loop""",
    "general": """door window room floor building lift camera light lamp clock calendar meeting ticket report note
        message letter reader page chapter question answer lesson course student teacher school library ticket seat
        train track platform signal station bus flight runway tower crew passenger luggage kitchen oven recipe table
        garden field tractor harvest barn weather wind rain tide river bridge tunnel map survey game player team
        match round score level quest item vote poll survey letter survey theatre song album artist""",
}

VERBS = """accept acquire activate add adjust advance allocate apply approve archive arm assign attach authorize balance
    bind block book boot borrow broadcast build buffer calibrate call cancel capture change charge check claim clean
    clear close collect commit compact compare complete compress compute configure confirm connect consume convert
    copy count create cut decode decrypt defer delete deliver deny deploy detach detect disable discard discover
    dispatch download drain drop dump elect eject emit enable encode encrypt end enqueue enter erase evaluate evict
    exceed execute exit expand expect expire export extend fail fetch fill find finish fix flush fold forget format
    forward free freeze generate get grant group grow halt handle heal hide hold ignore import index infer
    initialize insert inspect install invalidate invoke issue join keep kill label launch learn leave lift link list
    load locate lock lose map mark match measure merge migrate miss monitor mount move notify observe open order
    override pack park parse pass patch pause pick place plan poll post prepare print probe process promote propagate
    prune publish pull purge push put queue quit raise read rebuild receive recover recycle redirect reduce refresh
    register reject release reload remove rename renew repair replace reply report request reserve reset resize
    resolve restart restore resume retire retry return reuse revoke rotate route run save scan schedule seal search
    select send serve set settle ship shut sign skip sleep sort spawn split stage start stop store submit subscribe
    suspend swap switch sync tag terminate test throttle track transfer transform translate trigger trim unlock unload
    unmount update upgrade upload use validate verify visit vote wait wake walk warm watch weigh withdraw wrap write
    yield""".split()

ADJECTIVES = """active ambiguous available bad big blocked broken busy cached clean closed cold compatible complete
    concurrent configured corrupt critical damaged dead default degraded deprecated dirty disabled down dry due dynamic
    early effective empty enabled exclusive expired external failed fast fatal few final fine first foreign free fresh
    full global good hard healthy heavy hidden high hot idle illegal immediate incomplete inconsistent incremental
    initial inner internal invalid large last late lazy light local locked long loose low main malformed manual
    maximum minimum missing mixed negative new next nominal normal offline old online open optional orphaned outer
    overdue parallel partial pending permanent persistent poor possible previous primary private public random raw
    ready recent redundant regular remote residual restricted safe secondary secure shared short silent slow small soft
    spare stable stale standby static steady strict strong sudden synthetic temporary thin tight total transient
    unexpected uniform unknown unreachable unstable unsupported untrusted unused upstream urgent valid virtual visible
    volatile warm weak wet wide wrong young zero""".split()

ADVERBS = """again already automatically currently early finally fully immediately instead lately locally manually
    never now only partially permanently previously properly quickly remotely safely silently slowly soon successfully
    temporarily twice unexpectedly""".split()

STATES = """up down ready running stopped idle busy failed ok degraded unknown pending done open closed started
    waiting paused draining online offline healthy unhealthy active passive standby armed tripped cleared new
    assigned shipped delivered held rejected approved settled cancelled booked admitted discharged locked
    unlocked""".split()

REASONS = """timed out; connection refused; no such file; permission denied; out of memory; not found; already exists;
    checksum mismatch; bad argument; device not ready; limit exceeded; operation not permitted; not implemented;
    unexpected end of input; interrupted; broken pipe; no route to host; quota exceeded; version conflict; not leader;
    stale handle; certificate expired; signature does not match; too many open files; name not known; access denied;
    queue is full; deadline exceeded; retries exhausted; unsupported format; key not present; wrong type; busy;
    overflow; cancelled by operator; no space left; protocol violation; invalid state; aborted; no quorum"""
REASONS = [" ".join(reason.split()) for reason in REASONS.split(";")]

NOUNS = {topic: words.split() for topic, words in NOUNS.items()}

PREPOSITIONS = "for from to in on at by with of into after before during via under over without within".split()

FIRST_NAMES = """anna bela carla david elena farid greta hugo ines jonas kira lars mina nadia omar paula quentin rosa
    samir tilda ugo vera walid xenia yusuf zora marek ivana chen mei raj priya kofi ama lucas sofia""".split()

LAST_NAMES = """abel becker castro dvorak egede ferrari garcia horvat ito jensen kovac lopez moreau novak okafor
    pereira quist rossi silva tanaka urban vogel weber xu yilmaz zeman""".split()

IRREGULAR = {  # verb: past, past participle where it differs from regular forms
    "build": "built", "bind": "bound", "cut": "cut", "drop": "dropped", "feed": "fed", "find": "found",
    "forget": "forgotten", "freeze": "frozen", "get": "got", "grow": "grown", "hide": "hidden", "hold": "held",
    "keep": "kept", "leave": "left", "lose": "lost", "put": "put", "quit": "quit", "read": "read", "rebuild": "rebuilt",
    "reset": "reset", "run": "run", "send": "sent", "set": "set", "shut": "shut", "sleep": "slept", "split": "split",
    "wake": "woken", "withdraw": "withdrawn", "write": "written", "override": "overridden", "learn": "learned",
}
DOUBLED = {"commit", "drop", "emit", "map", "plan", "run", "ship", "skip", "stop", "submit", "swap", "tag", "trim",
           "wrap", "get", "put", "set", "cut", "quit", "split", "shut", "reset", "defer", "infer", "transfer", "format"}


def past(verb):
    if verb in IRREGULAR:
        return IRREGULAR[verb]
    if verb in DOUBLED:
        return verb + verb[-1] + "ed"
    if verb.endswith("e"):
        return verb + "d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + "ed"


def ing(verb):
    if verb in DOUBLED:
        return verb + verb[-1] + "ing"
    return (verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb) + "ing"


def third(verb):
    if verb.endswith(("s", "x", "ch", "sh")):
        return verb + "es"
    return verb[:-1] + "ies" if verb.endswith("y") and verb[-2] not in "aeiou" else verb + "s"


def plural(noun):
    return third(noun)
