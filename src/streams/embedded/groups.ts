/**
 * Group membership by leases. A member that changes the group (joins, leaves, finds an expired lease) computes the
 * whole new assignment in the same transaction; the others notice the new generation through `changes`. A member that
 * was away too long finds its row gone and joins anew.
 *
 *   join ──▶ member ──lease expired, seen by another──▶ gone ──seen by itself──▶ member (new generation)
 *               └──leave──▶ left                               └──leave──▶ left
 *
 * A member's id ends with the name of its process (src/process-name.ts), so the lease of a process that was killed on
 * this machine does not have to expire: whoever looks next takes its place.
 */
import { randomUUID } from 'node:crypto'
import { BehaviorSubject } from 'rxjs'
import { ContinuoError, codeOf } from '../../errors.ts'
import { hasEnded, processName } from '../../process-name.ts'
import { assign } from '../assign.ts'
import type { Assignment, Member, Membership } from '../log.ts'
import type { Database } from './database.ts'
import type { Topics } from './topics.ts'

export interface Groups {
  join(group: string, topic: string): Promise<Membership>
  members(group: string): Promise<readonly Member[]>
  /** Leaves all. */
  close(): Promise<void>
}

interface MemberRow {
  readonly member: string
  readonly expires: number
  readonly assigned: string
}

export const openGroups = (db: Database, topics: Topics, sessionTimeout: number): Groups => {
  const bump = db.prepare<{ generation: number }>(
    `INSERT INTO groups (group_id, topic, generation) VALUES (?, ?, 1)
     ON CONFLICT DO UPDATE SET generation = generation + 1 RETURNING generation`,
  )
  const selectMembers = db.prepare<MemberRow>(
    'SELECT member, expires, assigned FROM members WHERE group_id = ? AND topic = ? ORDER BY seniority, member',
  )
  // Without ?1 and ?2: Node 22.18 and older take numbered parameters for named ones and bind none of them.
  const insertMember = db.prepare(
    `INSERT INTO members (group_id, topic, member, seniority, expires, assigned) VALUES (?, ?, ?,
       1 + ifnull((SELECT generation FROM groups WHERE group_id = ? AND topic = ?), 0), 0, '[]')`,
  )
  const renewLease = db.prepare('UPDATE members SET expires = ? WHERE group_id = ? AND topic = ? AND member = ?')
  const setAssigned = db.prepare('UPDATE members SET assigned = ? WHERE group_id = ? AND topic = ? AND member = ?')
  const deleteMember = db.prepare('DELETE FROM members WHERE group_id = ? AND topic = ? AND member = ?')
  const deleteExpired = db.prepare('DELETE FROM members WHERE group_id = ? AND topic = ? AND expires < ?')
  const selectAssignment = db.prepare<{ generation: number; assigned: string }>(
    `SELECT generation, assigned FROM groups JOIN members USING (group_id, topic)
     WHERE group_id = ? AND topic = ? AND member = ?`,
  )
  const selectGroup = db.prepare<{ member: string; topic: string; assigned: string }>(
    'SELECT member, topic, assigned FROM members WHERE group_id = ? AND expires >= ? ORDER BY topic, seniority, member',
  )
  const memberships = new Set<Membership>()

  const rebalance = (group: string, topic: string): void => {
    bump.get(group, topic)
    const holders = selectMembers
      .all(group, topic)
      .map(({ member, assigned }) => ({ member, partitions: JSON.parse(assigned) as number[] }))
    if (holders.length === 0) return
    for (const [member, partitions] of assign(topics.find(topic).partitions, holders))
      setAssigned.run(JSON.stringify(partitions), group, topic, member)
  }

  const assignmentOf = (group: string, topic: string, member: string): Assignment | null => {
    const row = selectAssignment.get(group, topic, member)
    return row === undefined ? null : { generation: row.generation, partitions: JSON.parse(row.assigned) }
  }

  const dropEnded = (group: string, topic: string): number => {
    const ended = selectMembers
      .all(group, topic)
      .filter(({ member }) => hasEnded(member.slice(member.indexOf('@') + 1)))
    for (const { member } of ended) deleteMember.run(group, topic, member)
    return ended.length
  }

  /**
   * Heartbeat and (re)joining in one: renews or takes the lease, drops members that are gone, shares anew if that
   * changed anything.
   */
  const beat = (group: string, topic: string, member: string): Assignment => {
    const now = Date.now()
    const isMember = renewLease.run(now + sessionTimeout, group, topic, member).changes > 0
    if (!isMember) {
      insertMember.run(group, topic, member, group, topic)
      renewLease.run(now + sessionTimeout, group, topic, member)
    }
    const gone = Number(deleteExpired.run(group, topic, now).changes) + dropEnded(group, topic)
    if (!isMember || gone > 0) rebalance(group, topic)
    return assignmentOf(group, topic, member)!
  }

  const join = async (group: string, topic: string): Promise<Membership> => {
    if (group === '') throw new ContinuoError('INVALID', "A group's name is not empty.")
    const member = `${randomUUID()}@${processName() ?? ''}`
    const joining = `joining group ${group} on ${topic}`
    const first = await db.write(joining, () => beat(group, topic, member))
    const assignments = new BehaviorSubject<Assignment>(first)
    let left = false
    let looking = false
    let lookAgain = false

    const stop = (): void => {
      left = true
      clearInterval(heartbeat)
      unsubscribe()
      memberships.delete(membership)
    }
    /** Emits what is new. A log that cannot be reached may come back; any other fault ends the membership. */
    const accept = async (assignment: Promise<Assignment | null>): Promise<void> => {
      try {
        const found = await assignment
        if (found !== null && !left && found.generation > assignments.value.generation) assignments.next(found)
      } catch (error) {
        if (left || codeOf(error) === 'UNAVAILABLE') return
        stop()
        assignments.error(error)
      }
    }
    const renew = (): Promise<Assignment | null> =>
      db.write(`renewing the membership of group ${group}`, () => (left ? null : beat(group, topic, member)))
    const look = async (): Promise<void> => {
      lookAgain = true
      if (looking) return
      looking = true
      while (lookAgain && !left) {
        lookAgain = false
        const doing = `reading the assignment of group ${group}`
        await accept(db.read(doing, () => assignmentOf(group, topic, member)).then((found) => found ?? renew()))
      }
      looking = false
    }

    const heartbeat = setInterval(() => void accept(renew()), sessionTimeout / 3).unref()
    const unsubscribe = db.changes.subscribe(look)
    const membership: Membership = {
      assignments: assignments.asObservable(),
      leave: async () => {
        if (left) return
        stop()
        assignments.complete()
        await db.write(`leaving group ${group} on ${topic}`, () => {
          if (deleteMember.run(group, topic, member).changes > 0) rebalance(group, topic)
        })
      },
    }
    memberships.add(membership)
    void look() // The group may have changed before we subscribed.
    return membership
  }

  return {
    join,
    members: (group) =>
      db.read(`asking who is in group ${group}`, () =>
        selectGroup
          .all(group, Date.now())
          .map(({ member, topic, assigned }) => ({ member, topic, partitions: JSON.parse(assigned) as number[] })),
      ),
    close: async () => {
      await Promise.allSettled([...memberships].map((membership) => membership.leave()))
    },
  }
}
