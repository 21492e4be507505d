package respond

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 registers (section 10.2), and their titles.
const (
	TypeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	TypeAbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// problem is RFC 9457's object with the draft's member violated-policies, and two of ours.
type problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Instance   string   `json:"instance,omitempty"`
	Violated   []string `json:"violated-policies"`
	RetryAfter int64    `json:"retry_after,omitempty"` // seconds, as in the header
	RequestID  string   `json:"request_id,omitempty"`
}

func (b *Body) appendProblem(dst []byte, d *Decision) []byte {
	p := problem{
		Status: b.Status, Detail: string(appendDetail(nil, d)), Instance: escapeURI(b.Instance),
		Violated: Violated(d), RetryAfter: d.RetryAfter(), RequestID: b.requestID(),
	}
	if p.Status == 0 {
		p.Status = d.Status(0)
	}
	switch d.Cause {
	case ReducedCapacity:
		p.Type, p.Title = TypeReducedCapacity, "Temporary Reduced Capacity"
	case Refused:
		p.Type, p.Title = TypeAbnormalUsage, "Abnormal Usage Detected"
	default:
		p.Type, p.Title = TypeQuotaExceeded, "Quota Exceeded"
	}
	return appendJSON(dst, p)
}

// Violated returns the names of the limits that denied, as the header RateLimit-Policy spells them and in its order. It is
// never nil.
func Violated(d *Decision) []string {
	names := []string{}
	tightest := d.Tightest()
	if tightest < 0 {
		return names
	}
	listed := listPolicies(d, tightest)
	for i, index := range listed.all() {
		if d.Limits[index].Denied {
			names = append(names, string(listed.appendName(nil, d, i)))
		}
	}
	return names
}

// appendDetail appends a sentence for people about the limit that binds most.
func appendDetail(dst []byte, d *Decision) []byte {
	switch d.Cause {
	case ReducedCapacity:
		return append(dst, "Requests cannot be counted at the moment."...)
	case Refused:
		return append(dst, "Requests of this kind are not served."...)
	case LimitReached:
	}
	i := d.Tightest()
	if i < 0 || !d.Limits[i].Denied {
		return append(dst, "A limit has been reached."...)
	}
	l := &d.Limits[i]
	dst = append(dst, "The limit '"...)
	dst = AppendName(dst, l.Name)
	dst = append(dst, "' allows "...)
	dst = appendInteger(dst, l.Count)
	dst = append(dst, ' ')
	if l.Unit == "" {
		dst = append(dst, "requests"...)
	} else {
		dst = AppendName(dst, l.Unit)
	}
	dst = append(dst, " per "...)
	if seconds := l.windowSeconds(); seconds == 1 {
		dst = append(dst, "second"...)
	} else {
		dst = appendSeconds(dst, seconds)
	}
	dst = append(dst, ". Try again in "...)
	dst = appendSeconds(dst, max(1, d.RetryAfter()))
	return append(dst, '.')
}
