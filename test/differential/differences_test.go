package differential

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirhq/weir/test/servers"
)

// difference is something that weir answers otherwise, on purpose.
type difference struct {
	// text says what and why, as docs/envoyproxy-ratelimit.md has it.
	text string
	// variant is the only test that may show it; empty: all.
	variant string
	// forgive makes two answers the same in this respect, if weir's is as the text says.
	forgive func(request *rlsv3.RateLimitRequest, reference, weir *rlsv3.RateLimitResponse)
}

var differences = []difference{
	{
		"In dynamic metadata a hitsAddend of 1 for the whole request is left out, because it says what would be so without it.",
		"",
		func(request *rlsv3.RateLimitRequest, reference, _ *rlsv3.RateLimitResponse) {
			if request.GetHitsAddend() == 1 {
				delete(reference.GetDynamicMetadata().GetFields(), "hitsAddend")
			}
		},
	},
	{
		"A request whose limited descriptors are all in quota mode is denied when all of them are over. envoyproxy/ratelimit never denies it; " +
			"there quota mode only shows in dynamic metadata.",
		"",
		func(_ *rlsv3.RateLimitRequest, reference, weir *rlsv3.RateLimitResponse) {
			violations, others := 0, 0
			for i, s := range reference.GetStatuses() {
				if s.GetCode() == rlsv3.RateLimitResponse_OK && s.GetCurrentLimit() != nil && s.GetDurationUntilReset() == nil {
					violations++ // of a quota: only these have no time
					weir.Statuses[i].Code, weir.Statuses[i].DurationUntilReset = rlsv3.RateLimitResponse_OK, nil
				} else if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
					others++
				}
			}
			if violations > 0 && others == 0 && weir.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
				weir.OverallCode = reference.GetOverallCode()
			}
		},
	},
	{
		"With SHADOW_MODE a descriptor that is over is answered OK like the whole request, where envoyproxy/ratelimit answers OVER_LIMIT for it; " +
			"no quota is violated in its dynamic metadata either.",
		"shadow mode",
		func(_ *rlsv3.RateLimitRequest, reference, weir *rlsv3.RateLimitResponse) {
			if reference.GetOverallCode() != rlsv3.RateLimitResponse_OK {
				return
			}
			delete(reference.GetDynamicMetadata().GetFields(), "quotaModeViolations")
			for i, s := range reference.GetStatuses() {
				if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT && weir.GetStatuses()[i].GetCode() == rlsv3.RateLimitResponse_OK {
					s.Code = rlsv3.RateLimitResponse_OK
				}
			}
		},
	},
	{
		"A limit that has no name is called by its place in the rules, such as plan=free|user, and one that a gateway sends by the name of the " +
			"rule that it replaces. envoyproxy/ratelimit sends no name then.",
		"",
		func(_ *rlsv3.RateLimitRequest, reference, weir *rlsv3.RateLimitResponse) {
			for i, s := range reference.GetStatuses() {
				if s.GetCurrentLimit().GetName() == "" && weir.GetStatuses()[i].GetCurrentLimit() != nil {
					weir.Statuses[i].CurrentLimit.Name = ""
				}
			}
		},
	},
	{
		"The rate limit headers are those of the descriptor that a client has to wait for longest, or that has least left. " +
			"envoyproxy/ratelimit takes the last one that is over, or the first one that has least left.",
		"",
		func(_ *rlsv3.RateLimitRequest, reference, weir *rlsv3.RateLimitResponse) {
			if headersOfTightest(weir) {
				reference.ResponseHeadersToAdd, weir.ResponseHeadersToAdd = nil, nil
			}
		},
	},
}

// What is answered with an error has no reply to compare: the codes differ, as unreadable says.
const unreadable = "A request without a domain or without descriptors is answered with INVALID_ARGUMENT, where envoyproxy/ratelimit says UNKNOWN; " +
	"at /json both answer 400."

// byLimit shows only where a gateway sends several limits for one descriptor: with LOCAL_CACHE_SIZE_IN_BYTES generate sends none.
const byLimit = "With LOCAL_CACHE_SIZE_IN_BYTES a denial is remembered for a counter and the limit that it was denied by. envoyproxy/ratelimit remembers the " +
	"counter alone, and denies a request with a higher limit of its own by it."

// cachedCounter is the end of the names of counters that cannot be compared; see cached.
const cachedCounter = ".over_limit_with_local_cache"

const cached = "The counter over_limit_with_local_cache grows more slowly, because weir asks Redis again after a second, and for a request of another cost."

// unlimitedMark is what weir's /rlconfig says besides; see listed.
const unlimitedMark = ", unlimited: true"

const listed = "/rlconfig is sorted, and says unlimited: true of a rule that is; weir's own rules that envoyproxy/ratelimit could not have stand there too."

// headersOfTightest reports whether the headers are those of a status that is over, or if none is of one with least left.
func headersOfTightest(reply *rlsv3.RateLimitResponse) bool {
	over, least := false, ^uint32(0)
	for _, s := range reply.GetStatuses() {
		if s.GetCurrentLimit() != nil {
			over = over || s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT
			least = min(least, s.GetLimitRemaining())
		}
	}
	header := func(name string) string {
		for _, h := range reply.GetResponseHeadersToAdd() {
			if strings.EqualFold(h.GetKey(), name) {
				return h.GetValue()
			}
		}
		return ""
	}
	for _, s := range reply.GetStatuses() {
		if s.GetCurrentLimit() == nil || over && s.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT || !over && s.GetLimitRemaining() != least {
			continue
		}
		if header("ratelimit-limit") == strconv.FormatUint(uint64(s.GetCurrentLimit().GetRequestsPerUnit()), 10) &&
			header("ratelimit-remaining") == strconv.FormatUint(uint64(s.GetLimitRemaining()), 10) {
			return true
		}
	}
	return false
}

// What may differ is told to users, in the words of the list.
func TestDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(servers.Root(t), "docs", "envoyproxy-ratelimit.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	texts := []string{unreadable, byLimit, cached, listed}
	for _, d := range differences {
		texts = append(texts, d.text)
	}
	for _, text := range texts {
		if !strings.Contains(words, text) {
			t.Errorf("docs/envoyproxy-ratelimit.md does not say: %s", text)
		}
	}
}
