package dropin

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/config"
)

// weirDeadline is how long weir waits for Redis unless it is told to wait less: what a caller should never wait longer for.
var weirDeadline = config.Defaults().Redis.Timeout()

// server is the variables and the settings of one Redis.
type server struct {
	variable string // begins the variables' names
	setting  string // begins the settings' names
	own      []string
}

var (
	mainServer      = server{"REDIS_", "redis.", []string{"WEIR_REDIS_URL", "WEIR_REDIS_ADDRS"}}
	perSecondServer = server{"REDIS_PERSECOND_", "redis_per_second.", []string{"WEIR_REDIS_PER_SECOND_URL", "WEIR_REDIS_PER_SECOND_ADDRS"}}
)

// countsInRedis tells whether these variables name a Redis.
func (m *mapping) countsInRedis() bool {
	if m.own(mainServer.own...) {
		return slices.ContainsFunc(mainServer.own, func(name string) bool { return m.values[name] != "" })
	}
	return m.set("REDIS_URL") || m.options.Exists != nil && m.options.Exists(m.text("REDIS_URL"))
}

func (m *mapping) anyRedisTLS() bool {
	return m.redisTLS(mainServer) || m.bool("REDIS_PERSECOND") && m.redisTLS(perSecondServer)
}

func (m *mapping) redisTLS(s server) bool {
	return m.bool(s.variable+"TLS") || m.text(s.variable+"SOCKET_TYPE") == "tls" || strings.HasPrefix(m.text(s.variable+"URL"), "rediss://")
}

func mainRedis(m *mapping, v *Variable) {
	const health = "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"
	switch {
	case m.own(mainServer.own...):
		if m.set(v.Name) {
			m.notice(v.Name, "has no effect, nor has any other variable that begins with REDIS_: WEIR_REDIS_URL or WEIR_REDIS_ADDRS takes its place")
		}
	case !m.countsInRedis():
		m.notice(v.Name, "is not set, and there is no socket at %s: counters are in this process's memory, and replicas do not share them", m.text(v.Name))
		return
	default:
		m.redis(mainServer)
	}
	if m.bool(health) {
		m.need(health, config.NeedRedis)
	}
}

func perSecondRedis(m *mapping, v *Variable) {
	switch {
	case m.own(perSecondServer.own...):
		m.notice(v.Name, "has no effect: WEIR_REDIS_PER_SECOND_URL or WEIR_REDIS_PER_SECOND_ADDRS takes its place")
	case !m.countsInRedis():
		m.fault("REDIS_PERSECOND", "is true without a Redis for all other windows: set REDIS_URL, or write false")
	default:
		m.redis(perSecondServer)
	}
}

func (m *mapping) redis(s server) {
	m.redisTarget(s)
	m.redisAuth(s, s.variable+"AUTH", "username", "password")
	if size := s.variable + "POOL_SIZE"; m.set(size) {
		m.assign(size, s.setting+"pool_size", m.plain(size))
	}
	if timeout := s.variable + "TIMEOUT"; m.set(timeout) {
		m.redisTimeout(s, timeout)
	}
	if !m.redisTLS(s) {
		return
	}
	m.assign(s.variable+"TLS", s.setting+"tls.enabled", "true")
	m.file("REDIS_TLS_CLIENT_CERT", s.setting+"tls.cert_file")
	m.file("REDIS_TLS_CLIENT_KEY", s.setting+"tls.key_file")
	m.file("REDIS_TLS_CACERT", s.setting+"tls.ca_file")
	if skip := "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"; m.bool(skip) {
		m.assign(skip, s.setting+"tls.skip_name_check", "true")
	}
}

// redisTarget says where the server is. Messages do not repeat an address that may hold a password.
func (m *mapping) redisTarget(s server) {
	name, socket := s.variable+"URL", s.variable+"SOCKET_TYPE"
	target := m.text(name)
	if target == "" {
		m.fault(name, "is empty: write HOST:PORT, or the path of a socket")
		return
	}
	switch mode := strings.ToLower(m.text(s.variable + "TYPE")); mode {
	case "single":
		switch network := m.text(socket); {
		case strings.Contains(target, "://"):
			m.assign(name, s.setting+"url", target)
		case slices.Contains([]string{"tcp", "tcp4", "tcp6", "tls"}, network):
			m.addresses(s, listOf(target))
		case network == "unix" && strings.HasPrefix(target, "/"):
			m.assign(name, s.setting+"url", (&url.URL{Scheme: "unix", Path: target}).String())
		case network == "unix":
			m.fault(name, "%q is no path of a socket, which begins with /: write one, or set %s=tcp for HOST:PORT", withoutUser(target), socket)
		default:
			m.fault(socket, "%q is no kind of socket: write tcp, unix or tls", network)
		}
	case "cluster":
		m.assign(name, s.setting+"mode", config.RedisCluster)
		m.addresses(s, listOf(target))
	case "sentinel":
		parts := listOf(target)
		if len(parts) < 2 {
			m.fault(name, "%q names no Sentinels: write the name of the master, then each Sentinel, as in mymaster,host:26379,host:26379", withoutUser(target))
			return
		}
		m.assign(name, s.setting+"mode", config.RedisSentinel)
		m.assign(name, s.setting+"master_name", parts[0])
		m.addresses(s, parts[1:])
		m.redisAuth(s, s.variable+"SENTINEL_AUTH", "sentinel_username", "sentinel_password")
	default:
		m.fault(s.variable+"TYPE", "%q is no kind of Redis: write SINGLE, SENTINEL or CLUSTER", m.text(s.variable+"TYPE"))
	}
	if auth := s.variable + "SENTINEL_AUTH"; m.text(auth) != "" && !strings.EqualFold(m.text(s.variable+"TYPE"), "sentinel") {
		m.notice(auth, "has no effect, because %sTYPE is not SENTINEL", s.variable)
	}
}

// addresses sets addresses that are HOST:PORT.
func (m *mapping) addresses(s server, all []string) {
	name := s.variable + "URL"
	for _, address := range all {
		if strings.ContainsAny(address, "@/") {
			m.fault(name, "%q is no address: write HOST:PORT, and users and passwords into %sAUTH", withoutUser(address), s.variable)
			return
		}
	}
	m.list(name, s.setting+"addrs", all)
}

// withoutUser leaves out what stands before an @, which may be a password.
func withoutUser(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "..." + address[at:]
	}
	return address
}

// redisAuth reads "password" or "user:password".
func (m *mapping) redisAuth(s server, variable, username, password string) {
	auth := m.text(variable)
	if auth == "" {
		return
	}
	if user, pass, ok := strings.Cut(auth, ":"); ok {
		m.assign(variable, s.setting+username, user)
		auth = pass
	}
	m.assign(variable, s.setting+password, auth)
}

func (m *mapping) redisTimeout(s server, name string) {
	timeout := m.duration(name)
	if timeout > weirDeadline || timeout <= 0 {
		m.notice(name, "is %s, and callers wait for Redis for %s at most: set WEIR_%sTIMEOUT_MS to have them wait longer",
			timeout, weirDeadline, strings.ToUpper(strings.ReplaceAll(s.setting, ".", "_")))
		return
	}
	m.assign(name, s.setting+"timeout_ms", strconv.FormatInt(max(1, int64(timeout/time.Millisecond)), 10))
}
