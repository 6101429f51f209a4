# Jobs of every shape and name, for recorder.py. Run as an ordinary user. An operator then does
#   scontrol hold JOB                                   for the one named "held by an operator"
#   scontrol update JobId=JOB ExcNodeList=n1 StartTime=now 'Comment=hibernated | now' \
#       'AdminComment=JS1:x [slurm-reclaim: y]'         for the one named "asleep"
cd /tmp
submit() { sbatch --parsable --mem=100 --output=/tmp/o.%j "$@"; }
hibernated=$(submit -J asleep --wrap 'sleep 3000')
admin=$(submit -J 'held by an operator' --wrap 'sleep 3000')
salloc -J interactive --mem=100 sleep 3000 > /dev/null 2>&1 &
sleep 5
scontrol requeuehold State=SpecialExit "$hibernated"
scontrol requeuehold State=SpecialExit "$admin"
sleep 10
submit -J plain -t 10 --comment='it is | mine, "quoted" a=b' --wrap 'sleep 3000'
submit -J $'a|b\nc  d,e "q" é\xff\x01 Requeue=0 JobState=X' --wrap 'sleep 3000'
submit -J '' --wrap 'sleep 3000'
submit -J tasks --array=1-3%1 --wrap 'sleep 3000'
submit -J stays --no-requeue -t 1-02:03:04 --wrap 'sleep 3000'
submit -J held -H -x n2 --wrap 'sleep 3000'
submit -J '日本 ' --begin=now+1hour -p main,gpu --wrap 'sleep 3000'
submit -J done --wrap true
submit -J two -N2 --wrap 'sleep 3000'
submit -J het1 : --mem=100 -J het2 --wrap 'sleep 3000'
sleep 5
