package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/pdk"
	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Instance handles the requests of one plugin config. It is safe for concurrent use.
type Instance struct {
	settings  *settings.Settings
	questions []question
	decider   Decider // nil in an instance whose config is faulty
	fallback  Decider // nil: none
	speech    *speech
	logger    *slog.Logger
	recorder  Recorder // nil: nobody is told
	now       func() time.Time
}

// Access decides one request.
func (i *Instance) Access(kong *pdk.Kong) {
	handling := i.handling()
	defer func() {
		if value := recover(); value != nil {
			i.logger.Error("a panic was caught: please report it", "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			handling.ended(Fault, i.now)
			if !kong.Exited() {
				i.fault(kong, &lookup{kong: kong})
			}
		}
	}()
	l := &lookup{kong: kong}
	if i.decider == nil {
		handling.ended(Fault, i.now)
		i.fault(kong, l) // what is wrong was logged when the instance started
		return
	}
	request, err := i.request(l)
	if err != nil {
		i.logger.Error("Kong did not say whose request it is", "error", err)
		if !errors.Is(err, pdk.ErrReply) {
			handling.ended(Broken, i.now)
			return // Kong runs the event again
		}
		handling.ended(Fault, i.now)
		i.fault(kong, l)
		return
	}
	if len(request.Descriptors) == 0 {
		handling.ended(Skipped, i.now)
		return // nobody's, and such requests are not limited
	}
	decision, err := i.decide(request)
	if err != nil {
		i.logger.Error("a request was not decided", "error", err, "fault_tolerant", i.settings.FaultTolerant)
		handling.ended(Fault, i.now)
		i.fault(kong, l)
		return
	}
	handling.ended(i.result(&decision), i.now)
	i.answer(kong, l, &decision)
}

func (i *Instance) result(decision *respond.Decision) Result {
	switch {
	case !decision.Denied:
		return Passed
	case i.settings.DryRun:
		return DryRun
	default:
		return Limited
	}
}

// Close gives back what the instance shares with others.
func (i *Instance) Close() {
	if i.decider != nil {
		i.decider.Close()
	}
	if i.fallback != nil {
		i.fallback.Close()
	}
}

// request asks Kong what there is to ask about. It has no descriptors if the request has no identity and such are skipped.
func (i *Instance) request(l *lookup) (*ratelimit.Request, error) {
	request := &ratelimit.Request{Domain: i.settings.Domain, Cost: i.settings.Cost, Atomic: i.settings.Simple()}
	for q := range i.questions {
		asked := &i.questions[q]
		entries, ok, err := l.entries(asked.parts, i.settings.OnMissing)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		descriptor := ratelimit.Descriptor{Entries: entries}
		if asked.cost != nil {
			descriptor.Cost, descriptor.HasCost = *asked.cost, true
		}
		if len(asked.limits) == 0 {
			request.Descriptors = append(request.Descriptors, descriptor)
		}
		for w := range asked.limits {
			descriptor.Limit = &asked.limits[w]
			request.Descriptors = append(request.Descriptors, descriptor)
		}
	}
	if len(request.Descriptors) == 0 {
		return request, nil
	}
	if name := i.settings.CostHeader; name != "" {
		text, err := l.header(name)
		if err != nil {
			return nil, err
		}
		// A client chooses it: it must not be able to go for nothing, or to give back.
		if cost, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
			request.Cost = min(max(cost, 1), ratelimit.MaxCost)
		}
	}
	if i.settings.RequestID {
		id, err := l.requestID()
		if err != nil {
			return nil, err
		}
		request.ID = id
	}
	return request, nil
}

func (i *Instance) decide(request *ratelimit.Request) (respond.Decision, error) {
	decision, err := i.decider.Decide(context.Background(), request)
	if err != nil && i.fallback != nil {
		i.logger.Warn("counting locally: weir did not decide", "error", err)
		if local, fallbackErr := i.fallback.Decide(context.Background(), request); fallbackErr == nil {
			return local, nil
		} else {
			return local, errors.Join(err, fallbackErr)
		}
	}
	return decision, err
}
