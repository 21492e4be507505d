package access

import (
	"net/http"

	"github.com/weirhq/weir/kongplugin/internal/pdk"
	"github.com/weirhq/weir/pkg/respond"
)

// faultMessage is what Kong's own plugins say when something is wrong with them.
const faultMessage = "An unexpected error occurred"

// answer tells the client of a decision: headers for a request that goes on, else the whole response. In a dry run every
// request goes on, with the headers of what would have been.
func (i *Instance) answer(kong *pdk.Kong, l *lookup, decision *respond.Decision) {
	if i.settings.DryRun && decision.Denied {
		i.logger.Debug("a request would have been denied: dry run")
		decision.Denied = false
	}
	var headers []respond.Header
	if !i.settings.HideClientHeaders {
		headers = i.speech.headers.Append(nil, decision, i.now())
	}
	if !decision.Denied {
		if len(headers) == 0 {
			return
		}
		if err := kong.SetHeaders(headers); err != nil {
			i.logger.Warn("the response's headers were not set", "error", err)
		}
		return
	}
	status := i.settings.ErrorCode
	switch decision.Status(i.settings.QuotaCode) {
	case http.StatusTooManyRequests:
	case i.settings.QuotaCode:
		status = i.settings.QuotaCode
	case http.StatusServiceUnavailable: // nobody could count, and the rule denies then
		status = http.StatusServiceUnavailable
		if !i.settings.FaultTolerant {
			status = i.settings.FaultCode
		}
	}
	i.exit(kong, l, reply{status: status, message: i.settings.ErrorMessage, decision: decision, headers: headers, template: i.speech.template})
}

// fault answers a request that nobody can decide.
func (i *Instance) fault(kong *pdk.Kong, l *lookup) {
	if i.settings.FaultTolerant {
		return
	}
	i.exit(kong, l, reply{
		status: i.settings.FaultCode, message: faultMessage,
		decision: &respond.Decision{Denied: true, Cause: respond.ReducedCapacity},
	})
}

func (i *Instance) exit(kong *pdk.Kong, l *lookup, r reply) {
	status, body, headers := i.speech.render(l, &r)
	if err := kong.Exit(status, body, headers); err != nil {
		i.logger.Warn("a denial was not delivered", "error", err)
	}
}
